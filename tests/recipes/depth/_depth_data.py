"""Miniature data sets with depth on disk, in every layout that is read, of generated rooms and streets.

Each writer returns what it wrote: the frames, as they should be read again, by the name of their set. All the awkward
cases are in them: a grey image, depth in three channels, a frame with almost no depth, a sequence of one frame, cameras
of 3x4 numbers and off centre, several files, key frames, rotated bits, an image larger than its depth.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy
import torch
from PIL import Image

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.frames import Frame
from trainonce.recipes.depth.data.readers import hdf5
from trainonce.recipes.depth.generated.rooms import frames as generated

SIZE = (48, 64)
SPARSE = 0.03  # the part of pixels that LiDAR reaches
FEW = 20  # pixels of a frame that has almost no depth


def make_frames(seed, count, kind, size=SIZE, sparse=False):
    """Frames; as LiDAR would see them, only some pixels have depth."""
    images, depths, cameras = generated(seed, range(count), kind, size)
    if sparse:
        kept = torch.rand(depths.shape, generator=torch.Generator().manual_seed(seed)) < SPARSE
        depths = depths * kept
    return [Frame(*parts) for parts in zip(images, depths, cameras, strict=True)]


def with_few(frame, count=FEW):
    """Almost without depth."""
    depth = torch.zeros_like(frame.depth)
    depth.view(-1)[:count] = frame.depth.flatten()[-count:]
    return frame._replace(depth=depth)


# Reading


class Bytes:
    """An encoded image in memory."""

    def __init__(self, content, name="here.png"):
        self.content, self.name = content, name

    def __str__(self):
        return self.name

    def read(self):
        return self.content


def read_hdf5(root, name, **options):
    """The frames of a data set in HDF5 files."""
    return hdf5.frames(root, paper_data.LAYOUTS[name], **options)


def assert_same(got, expected, scale, camera=True):
    """Images exactly, depth within half a step, cameras."""
    assert torch.equal(got.image, expected.image)
    assert got.image.dtype == torch.uint8
    assert (got.depth - expected.depth).abs().max() <= 0.5 / scale + 1e-5
    assert got.depth.dtype == torch.float32
    if camera:
        torch.testing.assert_close(got.camera, expected.camera)


# Encoding


def encode(image, ending=".png", **options):
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, {".png": "PNG", ".jpg": "JPEG"}[ending], **options)
    return buffer.getvalue()


def colour(image, ending=".png", grey=False):
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    return encode(picture.convert("L") if grey else picture, ending, **({"quality": 95} if ending == ".jpg" else {}))


def sixteen(values):
    """A PNG with one channel of 16 bits."""
    return encode(Image.fromarray(values.numpy().astype(numpy.uint16)))


def depth16(depth, scale, rotated=False):
    values = (depth * scale).round().int()
    return sixteen(((values << 3) | (values >> 13)) & 0xFFFF if rotated else values)


def depth24(depth, scale, legacy=False):
    """Three channels of 8 bits; legacy: to the base of 255, the last channel counting least."""
    values, base = (depth * scale).round().long(), 255 if legacy else 256
    parts = [values % base, values // base % base, values // base**2]
    stacked = torch.stack(parts[::-1] if legacy else parts, -1)
    return encode(Image.fromarray(stacked.numpy().astype(numpy.uint8)))


def to_grey(image):
    """What is read of a grey image."""
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).convert("L").convert("RGB")
    return torch.from_numpy(numpy.array(picture)).permute(2, 0, 1)


# HDF5


def put(file, path, content):
    data = content.encode() if isinstance(content, str) else content
    file.create_dataset(path, data=numpy.frombuffer(data, dtype=numpy.uint8))


def write_sequences(path, lists, side, scale, frames, extra=None, three=()):
    """One HDF5 file of sequences.

    :param lists: For each list, its sequences.
    :param frames: For each sequence, its frames.
    :param extra: For each sequence, further entries.
    :param three: (sequence, number) of frames whose depth has three channels; their images are grey.
    """
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        table = {}
        for name, members in frames.items():
            entry = table[name] = {"image": [], "depth": [], "K": [], "cam2w": [], **(extra or {}).get(name, {})}
            for number, frame in enumerate(members):
                odd = (name, number) in three
                image, depth = f"/{name}/color/{number}.png", f"/{name}/depth/{number}.png"
                put(file, image, colour(frame.image, grey=odd))
                put(file, depth, depth24(frame.depth, scale) if odd else depth16(frame.depth, scale))
                entry["image"].append(image)
                entry["depth"].append(depth)
                entry["K"].append(frame.camera.tolist())
                entry["cam2w"].append(torch.eye(4).tolist())
        put(file, side, json.dumps(table))
        for name, sequences in lists.items():
            put(file, name, "\n".join(f"{each} {len(frames[each])}" for each in sequences) + "\n")


def write_images(paths, lists, side, scale, frames, *, chunked=False, third="", ending=".png"):
    """HDF5 files of single images.

    :param lists: For each list, its images by number.
    :param chunked: Whether the lists tell which file an image is in.
    :param third: What else is on each line.
    """
    import h5py

    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    files = [h5py.File(path, "w") for path in paths]
    cameras, lines = {}, []
    for number, frame in enumerate(frames):
        chunk = number % len(files)
        image, depth = f"images/{number:04d}{ending}", f"depths/{number:04d}.png"
        put(files[chunk], image, colour(frame.image, ending))
        put(
            files[chunk],
            depth,
            depth24(frame.depth, scale, legacy=True) if number == 0 else depth16(frame.depth, scale),
        )
        wide = torch.cat([frame.camera, torch.zeros(3, 1)], 1) if number % 2 else frame.camera
        cameras[image] = wide.tolist()
        lines.append(f"{image} {depth}" + (f" {chunk}" if chunked else third))
    if side:
        put(files[0], side, json.dumps(cameras))
    for name, numbers in lists.items():
        put(files[0], name, "\n".join(lines[number] for number in numbers))
    for file in files:
        file.close()


def write_scannet(root, size=SIZE):
    """Two sequences of four frames and one of one; one frame is grey with 24 bits, one has almost no depth."""
    frames = make_frames(1, 9, "room", size)
    frames[2] = with_few(frames[2])
    sequences = {"scene0000_00": frames[:4], "scene0001_00": frames[4:8], "scene0002_00": frames[8:]}
    lists = {"train.txt": ["scene0000_00", "scene0002_00"], "test.txt": ["scene0001_00"]}
    write_sequences(Path(root, "ScanNetS.hdf5"), lists, "sequences.json", 1000, sequences, three={("scene0000_00", 1)})
    frames[1] = frames[1]._replace(image=to_grey(frames[1].image))
    return {"train": [*frames[:4], frames[8]], "test": [frames[6]]}


def write_argoverse2(root, size=SIZE):
    """Two sequences; of the one to test with, the first frame is the key frame."""
    frames = make_frames(2, 8, "street", size, sparse=True)
    lists = {"train.txt": ["log0"], "val.txt": ["log1"]}
    sequences = {"log0": frames[:4], "log1": frames[4:]}
    extra = {"log1": {"keyframe_idx": 0}}
    write_sequences(Path(root, "AV2_viz.hdf5"), lists, "sequences_clean.json", 256, sequences, extra)
    return {"train": frames[:4], "test": [frames[4]]}


def write_waymo(root, size=SIZE):
    """Two sequences of one file and one of fish-eye cameras, which is left out."""
    frames = make_frames(3, 8, "street", size, sparse=True)
    lists = {"training.txt": ["segment-0", "fisheye"], "validation.txt": ["segment-1"]}
    sequences = {"segment-0": frames[:4], "segment-1": frames[4:], "fisheye": frames[:1]}
    extra = {"segment-0": {"chunk_idx": [0] * 4}, "fisheye": {"camera_model": ["Fisheye624"]}}
    write_sequences(Path(root, "Waymo_viz.hdf5"), lists, "sequences.json", 256, sequences, extra)
    return {"train": frames[:4], "test": [frames[6]]}


def write_nuscenes(root, size=SIZE):
    """Two files; every other camera has 3x4 numbers; the first depth has three channels."""
    frames = make_frames(4, 6, "street", size, sparse=True)
    paths = [Path(root, "nuscenes", f"nuscenes_{number}.hdf5") for number in range(2)]
    lists = {"train.txt": range(2), "val.txt": range(2, 6)}
    write_images(paths, lists, "intrinsics.json", 256, frames, chunked=True)
    return {"train": frames[:2], "test": frames[2:]}


def write_sunrgbd(root, size=SIZE):
    frames = make_frames(5, 5, "room", size)
    lists = {"alltrain.txt": range(2), "alltest.txt": range(2, 5)}
    write_images([Path(root, "SUNRGB.hdf5")], lists, "intrinsics.json", 1000, frames)
    return {"train": frames[:2], "test": frames[2:]}


def write_nyu_hdf5(root, size=SIZE):
    frames = make_frames(6, 3, "room", size)
    lists = {"nyu_train.txt": range(2), "nyu_test.txt": range(2, 3)}
    write_images([Path(root, "nyuv2.hdf5")], lists, "", 1000, frames, third=" 518.8579", ending=".jpg")
    return {"train": frames[:2], "test": frames[2:]}


HDF5 = {
    "scannet": write_scannet,
    "argoverse2": write_argoverse2,
    "waymo": write_waymo,
    "nuscenes": write_nuscenes,
    "sunrgbd": write_sunrgbd,
}


def write_hdf5(root, size=SIZE):
    """All five large data sets."""
    return {name: write(root, size) for name, write in HDF5.items()}


# Folders


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def matrix(camera, size=3):
    whole = torch.eye(size)
    whole[:3, :3] = camera
    return "\n".join(" ".join(f"{value:.6f}" for value in row) for row in whole.tolist()) + "\n"


def write_scannet_folder(root, size=SIZE):
    """Images with twice the pixels of their depth in each direction, numbered from 8 to 11."""
    root = Path(root)
    written = {}
    large = tuple(2 * n for n in size)
    for scene, split, seed in (("scene0000_00", "train", 7), ("scene0001_00", "val", 8)):
        images, depths, camera = generated(seed, [0] * 4, "room", large)
        frames = [Frame(i, d[::2, ::2].contiguous(), k) for i, d, k in zip(images, depths, camera, strict=True)]
        save(root / f"scans/{scene}/intrinsic/intrinsic_color.txt", matrix(camera[0], 4))
        for number, frame in enumerate(frames, 8):
            save(root / f"scans/{scene}/color/{number}.jpg", colour(frame.image, ".jpg"))
            save(root / f"scans/{scene}/depth/{number}.png", depth16(frame.depth * (number - 7) / 4, 1000))
            save(root / f"scans/{scene}/pose/{number}.txt", "-inf " * 16)
        written[split] = [frame._replace(depth=frame.depth * (n + 1) / 4) for n, frame in enumerate(frames)]
        save(root / f"{split}.txt", f"{scene}\n")
    return {"train": written["train"], "test": written["val"]}


def write_extracted_folder(root, size=SIZE):
    """Two cameras with one segment each for training and validation."""
    written = {}
    for split, seed in (("training", 9), ("validation", 10)):
        frames = []
        for camera, offset in (("FRONT", 0), ("SIDE_LEFT", 20)):
            segment = Path(root, split, "segment-0")
            some = make_frames(seed + offset, 2, "street", size, sparse=True)
            some = [frame._replace(camera=some[0].camera) for frame in some]
            save(segment / f"K_{camera}.txt", matrix(some[0].camera))
            for number, frame in enumerate(some):
                save(segment / f"image_{camera}/{number:03d}.png", colour(frame.image))
                save(segment / f"depth_{camera}/{number:03d}.png", depth16(frame.depth, 256))
            frames += some
        written[split] = frames
    return {"train": written["training"], "test": written["validation"]}


def write_sun_folder(root, size=SIZE):
    """Scenes whose depth has another name than their image and rotated bits; lists with SUN RGB-D's own long paths."""
    frames = make_frames(11, 3, "room", size)
    for number, frame in enumerate(frames):
        scene = Path(root, "SUNRGBD/kv2/kinect2data", f"{number:06d}_x")
        save(scene / "image/0000001.png", colour(frame.image))
        save(scene / f"depth/0000{number}-depth.png", depth16(frame.depth, 1000, rotated=True))
        save(scene / "depth_bfx/0000001.png", depth16(frame.depth * 0, 1000, rotated=True))
        save(scene / "intrinsics.txt", " ".join(f"{value:.6f}" for value in frame.camera.flatten().tolist()))
    long = "/n/fs/sun3d/data/SUNRGBD/kv2/kinect2data/"
    save(Path(root, "alltrain.txt"), f"{long}000000_x\n{long}000001_x\n")
    save(Path(root, "alltest.txt"), f"{long}000002_x/\n")
    return {"train": frames[:2], "test": frames[2:]}


FOLDERS = {
    "scannet": write_scannet_folder,
    "argoverse2": write_extracted_folder,
    "waymo": write_extracted_folder,
    "nuscenes": write_extracted_folder,
    "sunrgbd": write_sun_folder,
}


def write_folders(root, size=SIZE):
    """All five large data sets, each in its folder."""
    return {name: write(Path(root, name), size) for name, write in FOLDERS.items()}


# Archives

NYU_STEP = 9.99547 / 255


def write_archives(root, *, zipped=True, count=24, size=SIZE):
    """NYU Depth V2, TUM and 7-Scenes; of NYU's frames, three to train on and two to test with take turns."""
    window = {"eigen_crop_rows": [2, size[0] - 1], "eigen_crop_cols": [3, size[1] - 2]}
    written = {"nyu": make_frames(12, count, "room", size)}
    train = [number for number in range(count) if number % 5 < 3]
    test = [number for number in range(count) if number % 5 >= 3]
    meta = {"K": camera_entry(written["nyu"][0].camera), "train": train, "test": test, **window}
    members = {"nyuv2_320/meta.json": json.dumps(meta)}
    for number, frame in enumerate(written["nyu"]):
        values = (frame.depth / NYU_STEP - 0.5).round().clamp(0, 255).to(torch.uint8)
        members[f"nyuv2_320/rgb/{number:04d}.jpg"] = colour(frame.image, ".jpg")
        members[f"nyuv2_320/depth/{number:04d}.png"] = encode(Image.fromarray(values.numpy()))
    for name, key, folders in (
        ("tum_fr1_320", "tum", ("fr1_desk/", "fr1_xyz/")),
        ("sevenscenes_redkitchen_320", "7scenes", ("",)),
    ):
        written[key] = make_frames(13, 2 * len(folders), "room", size)
        members[f"{name}/meta.json"] = json.dumps({"K": camera_entry(written[key][0].camera)})
        for number, frame in enumerate(written[key]):
            where = f"{name}/{folders[number // 2]}"
            members[f"{where}rgb/{number}.5.jpg"] = colour(frame.image, ".jpg")
            members[f"{where}depth/{number}.5.png"] = depth16(frame.depth, 1000)
    for name in {path.split("/")[0] for path in members}:
        own = {path: content for path, content in members.items() if path.startswith(f"{name}/")}
        if zipped:
            with zipfile.ZipFile(Path(root, f"{name}.zip"), "w") as archive:
                for path, content in own.items():
                    archive.writestr(path, content)
        else:
            for path, content in own.items():
                save(Path(root, path), content)
    return written


def camera_entry(camera):
    (fx, _, cx), (_, fy, cy), _ = camera.tolist()
    return {"fx": fx, "fy": fy, "cx": cx, "cy": cy}

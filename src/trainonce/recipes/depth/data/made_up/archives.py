"""Made-up archives of NYU Depth V2, TUM RGB-D and 7-Scenes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainonce.recipes.depth.data.made_up.frames import SIZE, colour, depth16, make_frames
from trainonce.recipes.vision.encode import encode, write_file

if TYPE_CHECKING:
    import os

    from torch import Tensor

    from trainonce.recipes.depth.data.frames import Frame

    Folder = str | os.PathLike[str]

NYU_STEP = 9.99547 / 255


def write_archives(
    root: Folder, size: tuple[int, int] = SIZE, *, zipped: bool = True, count: int = 24
) -> dict[str, list[Frame]]:
    """Write NYU Depth V2, TUM and 7-Scenes; of NYU's frames, three to train on and two to test with take turns."""
    window = {"eigen_crop_rows": [2, size[0] - 1], "eigen_crop_cols": [3, size[1] - 2]}
    written = {"nyu": make_frames(12, count, "room", size)}
    train = [number for number in range(count) if number % 5 < 3]
    test = [number for number in range(count) if number % 5 >= 3]
    meta = {"K": _camera_entry(written["nyu"][0].camera), "train": train, "test": test, **window}
    members: dict[str, bytes | str] = {"nyuv2_320/meta.json": json.dumps(meta)}
    for number, frame in enumerate(written["nyu"]):
        values = (frame.depth / NYU_STEP - 0.5).round().clamp(0, 255).to(torch.uint8)
        members[f"nyuv2_320/rgb/{number:04d}.jpg"] = colour(frame.image, ".jpg")
        members[f"nyuv2_320/depth/{number:04d}.png"] = encode(values)
    for name, key, folders in (
        ("tum_fr1_320", "tum", ("fr1_desk/", "fr1_xyz/")),
        ("sevenscenes_redkitchen_320", "7scenes", ("",)),
    ):
        written[key] = make_frames(13, 2 * len(folders), "room", size)
        members[f"{name}/meta.json"] = json.dumps({"K": _camera_entry(written[key][0].camera)})
        for number, frame in enumerate(written[key]):
            where = f"{name}/{folders[number // 2]}"
            members[f"{where}rgb/{number}.5.jpg"] = colour(frame.image, ".jpg")
            members[f"{where}depth/{number}.5.png"] = depth16(frame.depth, 1000)
    for name in sorted({path.split("/")[0] for path in members}):
        own = {path: content for path, content in members.items() if path.startswith(f"{name}/")}
        if zipped:
            with zipfile.ZipFile(Path(root, f"{name}.zip"), "w") as archive:
                for path, content in own.items():
                    archive.writestr(path, content)
        else:
            for path, content in own.items():
                write_file(Path(root, path), content)
    return written


def _camera_entry(camera: Tensor) -> dict[str, float]:
    (fx, _, cx), (_, fy, cy), _ = camera.tolist()
    return {"fx": fx, "fy": fy, "cx": cx, "cy": cy}

"""Decoding images and depth, and resizing frames with their cameras."""

import pytest
import torch
from _depth_data import Bytes
from _messages import message

from trainonce.recipes.depth.data.made_up.frames import SIZE, colour, depth16, depth24, make_frames
from trainonce.recipes.depth.data.readers.frame_files import (
    DepthFormat,
    FrameFiles,
    crop,
    read_depth,
    read_image,
    resize,
    resize_depth,
)
from trainonce.recipes.vision.encode import encode


def test_depth_is_read_in_metres_whatever_its_coding():
    depth = torch.tensor([[0.0, 1.234, 65.0], [7.999, 0.001, 3.5]])
    assert torch.allclose(read_depth(Bytes(depth16(depth, 1000)), DepthFormat(1000.0)), depth, atol=5e-4)
    rotated = depth16(depth.clamp(max=8.191), 1000, rotated=True)
    assert torch.allclose(
        read_depth(Bytes(rotated), DepthFormat(1000.0, rotated=True)), depth.clamp(max=8.191), atol=5e-4
    )
    far = depth * 100  # more than 16 bits hold
    assert torch.allclose(read_depth(Bytes(depth24(far, 256)), DepthFormat(256.0)), far, atol=0.002)
    legacy = read_depth(Bytes(depth24(far, 256, legacy=True)), DepthFormat(256.0, legacy=True))
    assert torch.allclose(legacy, far, atol=0.002)
    eight = encode(torch.tensor([[0, 255]], dtype=torch.uint8))
    assert read_depth(Bytes(eight), DepthFormat(10.0, 0.5, eight=True))[0].tolist() == pytest.approx([0.05, 25.55])


def test_all_16_bits_of_a_rotated_value_come_back():
    values = torch.tensor([[1, 5, 8191, 8192, 40000, 65535]])
    turned = ((values << 3) | (values >> 13)) & 0xFFFF
    found = read_depth(Bytes(encode(turned)), DepthFormat(1.0, rotated=True))
    assert found.long().tolist() == values.tolist()


def test_grey_images_are_repeated():
    image = make_frames(0, 1, "room")[0].image
    grey = read_image(Bytes(colour(image, grey=True)))
    assert tuple(grey.shape) == (3, *SIZE)
    assert torch.equal(grey[0], grey[2])
    assert torch.equal(read_image(Bytes(colour(image))), image)


def test_images_of_the_wrong_kind_are_reported():
    grey = Bytes(encode(torch.zeros(4, 4, dtype=torch.uint8)), "a.png")
    assert message(read_depth, grey, DepthFormat(1000.0)) == (
        "The depth image a.png must have one channel of 16 bits, or three of 8; its mode is 'L'."
    )
    deep = Bytes(depth16(torch.ones(4, 4), 1000), "b.png")
    assert message(read_image, deep).startswith("The image b.png must have 8 bits per channel; its mode is 'I")
    assert "cannot be read" in message(read_depth, Bytes(b"no image", "c.png"), DepthFormat(1000.0))
    text = message(
        read_depth, Bytes(encode(torch.zeros(4, 4, 3, dtype=torch.uint8)), "d.png"), DepthFormat(1.0, eight=True)
    )
    assert text == "The depth image d.png must have one channel of 8 bits; its mode is 'RGB'."


def project(camera, points):
    """Where points are seen, from the corner of the first pixel."""
    seen = points @ camera.T
    return seen[:, :2] / seen[:, 2:]


def test_cameras_follow_cutting_and_resizing():
    frame = make_frames(0, 1, "room")[0]
    points = torch.tensor([[0.1, -0.2, 2.0], [0.4, 0.3, 3.0], [-0.5, 0.1, 1.5]])
    before = project(frame.camera, points)
    part = crop(frame, (5, 40, 7, 60))
    torch.testing.assert_close(project(part.camera, points), before - torch.tensor([7.0, 5.0]))
    assert torch.equal(part.image, frame.image[:, 5:40, 7:60])
    assert torch.equal(part.depth, frame.depth[5:40, 7:60])
    small = resize(frame, (24, 16))
    torch.testing.assert_close(project(small.camera, points), before * torch.tensor([16 / 64, 24 / 48]))
    assert tuple(small.image.shape) == (3, 24, 16)
    assert torch.equal(frame.camera, make_frames(0, 1, "room")[0].camera), "the original is left as it is"


def test_a_smaller_depth_takes_the_known_pixel_nearest_to_the_middle():
    depth = torch.zeros(6, 6)
    depth[1, 1], depth[0, 0] = 4.0, 9.0  # in the first cell of 3x3, the middle one is nearer
    depth[5, 0] = 7.0
    assert resize_depth(depth, (2, 2)).tolist() == [[4.0, 0.0], [7.0, 0.0]]


def test_sparse_depth_is_not_lost_when_made_smaller():
    depth = make_frames(2, 1, "street", (96, 128), sparse=True)[0].depth
    small = resize_depth(depth, (24, 32))
    assert (small > 0).float().mean() > 5 * (depth > 0).float().mean()
    assert set(small[small > 0].tolist()) <= set(depth.flatten().tolist())


def test_a_larger_depth_takes_the_nearest_known_of_four():
    depth = torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    large = resize_depth(depth, (4, 4))
    assert large[0].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert large[3].tolist() == [3.0, 3.0, 4.0, 4.0]
    assert large[1, 3] == 4.0
    assert large[2].tolist() == [3.0, 3.0, 4.0, 4.0]


def test_resizing_keeps_depth_where_it_is():
    paper_data, small = make_frames(3, 1, "room", (96, 128))[0], make_frames(3, 1, "room", (32, 128 // 3))[0]
    got = resize(paper_data, (32, 42))
    torch.testing.assert_close(got.camera[0, 0], small.camera[0, 0])
    assert ((got.depth / small.depth - 1).abs() < 0.05).float().mean() > 0.9
    assert (got.image.float() - small.image.float()).abs().mean() < 20


def test_frame_files_need_as_many_of_everything():
    assert message(FrameFiles, [Bytes(b"")], [], torch.zeros(1, 3, 3), DepthFormat(1.0)) == (
        "FrameFiles needs as many depths and cameras as images; got 1, 0 and 1."
    )
    assert "at least one pixel" in message(FrameFiles, [], [], torch.zeros(0, 3, 3), DepthFormat(1.0), size=(0, 3))

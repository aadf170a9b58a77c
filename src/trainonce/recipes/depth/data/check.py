"""Looking at the data before a long run: frames are read once, and what is wrong with them is said.

What is looked for is what ruins a training without an error: cameras that cannot be, depth in another unit, frames
without depth, images and depths that do not belong together.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce.recipes.depth.data.batches import FEWEST as LEAST
from trainonce.recipes.depth.data.frames import Subset
from trainonce.recipes.depth.data.readers.frame_files import format_size
from trainonce.recipes.depth.generated.rooms import GeneratedFrames
from trainonce.recipes.segmentation.data.batches import named
from trainonce.recipes.segmentation.data.check import summary
from trainonce.recipes.segmentation.data.scenes import evenly_spaced

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trainonce.recipes.depth.data.frames import Frame, Frames, Range, Sets

#: Between these, in metres, half of what is seen should be, whatever it is.
PLAUSIBLE = (0.05, 300.0)
USUAL = 5.0  # metres: a depth that tells by which factor others are off


class Look(NamedTuple):
    """What is found in a frame: what is wrong with it, how many pixels have a depth that counts, and their median."""

    problem: str = ""
    known: int = 0
    median: float = math.nan
    name: str = ""


def check(sets: Sets, *, most: int = 2000, threads: int = 8) -> dict[str, int]:
    """Reads frames of every set once, and raises one error that names what is wrong with them.

    :param most: At most so many frames of each set, evenly spread; 0: all.
    :param threads: How many are read at a time.
    :return: For each set, how many of the frames that were looked at have so little depth that they are left out.
    """
    lists: dict[str, tuple[Frames, Range | None]] = {}
    lists |= {f"training {name}": (frames, None) for name, frames in sets.training.items()}
    lists |= {name: (examined.frames, examined.range) for name, examined in sets.evaluation_sets().items()}
    problems, too_few = [], {}
    seen: dict[Hashable, Look] = {}
    for name, (frames, counts) in lists.items():
        if len(frames) and isinstance(origin(frames, 0)[0], GeneratedFrames):  # what is made needs no check
            too_few[name] = 0
            continue
        looks = _looks(frames, counts, most, threads, seen)
        too_few[name] = sum(not look.problem and look.known < LEAST for look in looks)
        problems += [look.problem for look in looks if look.problem] or set_problems(name, looks, counts)
    if problems:
        raise ValueError(summary(list(dict.fromkeys(problems))))
    return too_few


def _looks(frames: Frames, counts: Range | None, most: int, threads: int, seen: dict[Hashable, Look]) -> list[Look]:
    """What is found in the frames of a set. A frame in two sets is read once."""
    chosen = evenly_spaced(len(frames), most) if most else range(len(frames))
    places = [origin(frames, index) for index in chosen]
    keys = [(id(whole), index, counts) for whole, index in places]
    new = {key: place for key, place in zip(keys, places, strict=True) if key not in seen}
    with ThreadPoolExecutor(max(1, threads)) as pool:
        found = pool.map(lambda place: inspect(place[0], place[1], counts), new.values())
        seen |= zip(new, found, strict=True)
    return [seen[key] for key in keys]


def origin(frames: Frames, index: int) -> tuple[Frames, int]:
    """The list that a frame of a subset comes from, and where it is there."""
    while isinstance(frames, Subset):
        index, frames = frames.indices[index], frames.whole
    return frames, index


def inspect(frames: Frames, index: int, counts: Range | None) -> Look:
    """Reads a frame and says what is found."""
    name = frames.name(index)
    try:
        frame = frames.frame(index)
    except (ValueError, OSError) as error:
        return Look(named(name, error))
    problem = frame_problem(name, frame)
    if problem:
        return Look(problem)
    known = frame.depth[frame.depth > 0]
    if not known.numel():
        return Look()
    in_range = known.numel() if counts is None else int(((known >= counts.nearest) & (known <= counts.farthest)).sum())
    return Look(known=in_range, median=float(known.median()), name=name)


def frame_problem(name: str, frame: Frame) -> str:
    """What is wrong with a frame, or nothing."""
    image, depth, camera = frame
    if tuple(image.shape[1:]) != tuple(depth.shape):
        sizes = f"{format_size(image.shape[1:])} and {format_size(depth.shape)}"
        return f"The image {name} and its depth must be of one size; they have {sizes} pixels."
    height, width = depth.shape
    if tuple(camera.shape) != (3, 3) or not bool(torch.isfinite(camera).all()):
        found = "not all numbers are finite" if tuple(camera.shape) == (3, 3) else f"it is {format_size(camera.shape)}"
        return f"The intrinsics of {name} must be a 3x3 matrix of finite numbers; {found}."
    (fx, _, cx), (_, fy, cy), _ = camera.tolist()
    if min(fx, fy) <= 0:
        return f"The focal lengths of {name} must be above 0; they are {fx:g} and {fy:g} pixels."
    if not (0 < cx < width and 0 < cy < height):
        where = (
            f"its image has {format_size((height, width))} pixels (height x width), its centre is at x {cx:g}, y {cy:g}"
        )
        return f"The camera of {name} must have its centre in the image; {where}. Are they of the same size?"
    if not bool(torch.isfinite(depth).all()) or bool((depth < 0).any()):
        return f"The depth of {name} must be finite and not below 0, with 0 for unknown; it is not."
    return ""


def set_problems(name: str, looks: list[Look], counts: Range | None = None) -> list[str]:
    """What is wrong with a set of frames that are each in order.

    :param counts: The depths that count in its metrics, where it is one to choose by or to test with.
    """
    if not looks:
        return [f"The set {name!r} has no frames."]
    medians = sorted(look.median for look in looks if not math.isnan(look.median))
    if medians:
        middle = medians[len(medians) // 2]
        low, high = PLAUSIBLE
        if not low <= middle <= high:
            rule = f"The depth of the set {name!r} must be in metres, half of it between {low:g} and {high:g}"
            factor = 10 ** round(math.log10(middle / USUAL))
            first = next(look.name for look in looks if look.name)
            found = f"its median is {middle:.3g}, likely {_times(factor)}"
            return [f"{rule}; {found}. Correct the scale; the first of them is {first}."]
        odd = [look for look in looks if look.known >= LEAST and not low / 10 <= look.median <= high]
        if odd:
            rule = f"Depth must be in metres, half of it between {low:g} and {high:g}"
            return [f"{rule}; the median of {look.name} is {look.median:.3g}. Correct its scale." for look in odd]
    if max(look.known for look in looks) < LEAST:
        best = max(look.known for look in looks)
        rule = f"Frames of the set {name!r} must have at least {LEAST} pixels with a depth that counts"
        seen = [look for look in looks if not math.isnan(look.median)]
        hint = f" The median depth of {seen[0].name} is {seen[0].median:.3g} m: is its scale right?" if seen else ""
        return [f"{rule}; of the {len(looks)} that were looked at, the best has {best}.{hint}"]
    if counts is not None and (middle := medians[len(medians) // 2]) > counts.farthest:
        rule = f"Half of the depth of the set {name!r} must be below {counts.farthest:g} m, where its metrics end"
        return [f"{rule}; its median is {middle:.3g} m. Is its scale right?"]
    return []


def _times(factor: float) -> str:
    return f"{factor:g} times too large" if factor > 1 else f"{1 / factor:g} times too small"

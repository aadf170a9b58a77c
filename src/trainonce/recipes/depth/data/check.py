"""The check of frames before a long run: they are read once, and one error lists all problems.

It finds what ruins a training without an error: impossible cameras, depth in another unit, frames without depth, images
and depths that do not belong together.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce.recipes.depth.data.batches import FEWEST as LEAST
from trainonce.recipes.depth.data.frames import origin
from trainonce.recipes.depth.generated.rooms import GeneratedFrames
from trainonce.recipes.vision.checks import format_size, summarize
from trainonce.recipes.vision.indices import evenly_spaced
from trainonce.recipes.vision.loading import error_with_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from trainonce.recipes.depth.data.frames import Frame, Frames, Range, Sets

#: In metres: the median depth of any set should be between these.
PLAUSIBLE = (0.05, 300.0)
USUAL = 5.0  # metres: a typical median, to guess by which factor others are off


class FrameCheck(NamedTuple):
    """What is found in a frame: its problem, how many pixels have a depth that counts, and their median."""

    problem: str = ""
    known: int = 0
    median: float = math.nan
    name: str = ""
    size: tuple[int, ...] = ()


class SetCheck(NamedTuple):
    """What is found in a set: how many frames it has, and what those that were read hold."""

    total: int
    frames: tuple[FrameCheck, ...]

    @property
    def sparse(self) -> int:
        """How many of the frames that were read have so little depth that they are not trained on."""
        return sum(each.known < LEAST for each in self.frames)

    def __str__(self) -> str:
        if not self.frames:
            return f"{self.total:,} frames, generated"
        sizes = Counter(format_size(each.size) for each in self.frames)
        shown = ", ".join(size if len(sizes) == 1 else f"{size} ({n:,})" for size, n in sizes.most_common(3))
        medians = sorted(each.median for each in self.frames if not math.isnan(each.median))
        some = f" ({len(self.frames):,} read)" if len(self.frames) < self.total else ""
        few = f"; {self.sparse:,} with under {LEAST} known pixels" if self.sparse else ""
        number = f"{self.total:,} frame{'s' * (self.total != 1)}{some}"
        return f"{number} of {shown} pixels, median depth {medians[len(medians) // 2]:.3g} m{few}"


def check(
    sets: Sets,
    *,
    most: int = 2000,
    threads: int = 8,
    progress: Callable[..., None] = lambda done, total, what: None,
) -> dict[str, SetCheck]:
    """Read frames of every set once, and raise one error that lists all problems; return what each set holds.

    :param most: At most so many frames of each set, evenly spaced; 0: all.
    :param threads: How many are read at a time.
    """
    lists: dict[str, tuple[Frames, Range | None]] = {}
    lists |= {f"training {name}": (frames, None) for name, frames in sets.training.items()}
    lists |= {name: (examined.frames, examined.range) for name, examined in sets.evaluation_sets().items()}
    problems, checked = [], {}
    known: dict[Hashable, FrameCheck] = {}
    for name, (frames, counts) in lists.items():
        if len(frames) and isinstance(origin(frames, 0)[0], GeneratedFrames):  # generated frames need no check
            checked[name] = SetCheck(len(frames), ())
            continue
        found = _check_frames(frames, counts, most, threads, known, functools.partial(progress, what=name))
        checked[name] = SetCheck(len(frames), tuple(found))
        problems += [each.problem for each in found if each.problem] or set_problems(name, found, counts)
    if problems:
        raise ValueError(summarize(list(dict.fromkeys(problems))))
    return checked


def _check_frames(
    frames: Frames,
    counts: Range | None,
    most: int,
    threads: int,
    known: dict[Hashable, FrameCheck],
    progress: Callable[..., None],
) -> list[FrameCheck]:
    """What is found in the frames of a set. A frame in two sets is read once.

    :param known: What has been found in frames of other sets; grows.
    """
    chosen = evenly_spaced(len(frames), most) if most else range(len(frames))
    places = [origin(frames, index) for index in chosen]
    keys = [(id(whole), index, counts) for whole, index in places]
    new = {key: place for key, place in zip(keys, places, strict=True) if key not in known}
    with ThreadPoolExecutor(max(1, threads)) as pool:
        found = pool.map(lambda place: inspect(place[0], place[1], counts), new.values())
        for done, (key, each) in enumerate(zip(new, found, strict=True), 1):
            known[key] = each
            progress(done, len(new))
    return [known[key] for key in keys]


def inspect(frames: Frames, index: int, counts: Range | None) -> FrameCheck:
    """Read a frame and return what is found."""
    name = frames.name(index)
    try:
        frame = frames.frame(index)
    except (ValueError, OSError) as error:
        return FrameCheck(error_with_name(name, error))
    problem = frame_problem(name, frame)
    if problem:
        return FrameCheck(problem)
    known = frame.depth[frame.depth > 0]
    size = tuple(frame.depth.shape)
    if not known.numel():
        return FrameCheck(size=size)
    in_range = known.numel() if counts is None else int(((known >= counts.nearest) & (known <= counts.farthest)).sum())
    return FrameCheck(known=in_range, median=float(known.median()), name=name, size=size)


def frame_problem(name: str, frame: Frame) -> str:
    """The problem of a frame, or an empty text."""
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


def set_problems(name: str, frames: list[FrameCheck], counts: Range | None = None) -> list[str]:
    """The problems of a set whose frames have none by themselves.

    :param counts: The depths that count in its metrics, for validation and test sets.
    """
    if not frames:
        return [f"The set {name!r} has no frames."]
    medians = sorted(frame.median for frame in frames if not math.isnan(frame.median))
    if medians:
        middle = medians[len(medians) // 2]
        low, high = PLAUSIBLE
        if not low <= middle <= high:
            rule = f"The depth of the set {name!r} must be in metres, half of it between {low:g} and {high:g}"
            factor = 10 ** round(math.log10(middle / USUAL))
            first = next(frame.name for frame in frames if frame.name)
            found = f"its median is {middle:.3g}, likely {_times(factor)}"
            return [f"{rule}; {found}. Correct the scale; the first of them is {first}."]
        odd = [frame for frame in frames if frame.known >= LEAST and not low / 10 <= frame.median <= high]
        if odd:
            rule = f"Depth must be in metres, half of it between {low:g} and {high:g}"
            return [f"{rule}; the median of {frame.name} is {frame.median:.3g}. Correct its scale." for frame in odd]
    if max(frame.known for frame in frames) < LEAST:
        best = max(frame.known for frame in frames)
        rule = f"Frames of the set {name!r} must have at least {LEAST} pixels with a depth that counts"
        seen = [frame for frame in frames if not math.isnan(frame.median)]
        hint = f" The median depth of {seen[0].name} is {seen[0].median:.3g} m: is its scale right?" if seen else ""
        return [f"{rule}; of the {len(frames)} that were checked, the best has {best}.{hint}"]
    if counts is not None and (middle := medians[len(medians) // 2]) > counts.farthest:
        rule = f"Half of the depth of the set {name!r} must be below {counts.farthest:g} m, where its metrics end"
        return [f"{rule}; its median is {middle:.3g} m. Is its scale right?"]
    return []


def _times(factor: float) -> str:
    return f"{factor:g} times too large" if factor > 1 else f"{1 / factor:g} times too small"

"""Pictures of predictions: depth maps on one colour scale beside their error, and point clouds from another side."""

from __future__ import annotations

import io
import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from trainonce.extras import require
from trainonce.recipes.depth.geometry import intrinsics, points
from trainonce.recipes.vision.encode import write_file
from trainonce.recipes.vision.panels import DPI, EDGE, GAP, HEAD, LIMIT, SMALL, TILE, fit_tile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainonce.recipes.depth.data.frames import Frame

    #: A frame, and the depth (height, width) and the camera (3, 3) that the network predicts for it.
    Row = tuple[Frame, Tensor, Tensor]

MAPS, CLOUDS = ("image", "true depth", "predicted depth", "error"), ("image", "true points", "predicted points")
UNKNOWN, PAPER = (90, 90, 90), 255  # the colour of unknown depth; of the background
WORST = 0.5  # the relative error at which the colour scale ends
BAR, SIDE = 10, 118  # pixels: of a legend's bar; of both legends beside a row
NEAR_FAR, LITTLE_MUCH = "turbo_r", "magma"
RAISED, ASIDE, BACK = (
    math.radians(28),
    math.radians(24),
    1.15,
)  # the viewpoint of point clouds: angles, and the factor of the distance
OVERLAP = 1.6  # the size of a drawn point by the distance of neighbours, so that slanted walls have no gaps
CLOUD = (240, 320)
LARGEST = 9  # pixels: the side of a drawn point, at most


class Legend(NamedTuple):
    """A colour scale with the labels of its ends and its middle."""

    colours: str
    low: str
    middle: str
    high: str


# Depth maps


def write_panel(rows: Sequence[Row], path: Path) -> None:
    """Write one PNG, or replace it in one move: a row a frame; truth and prediction have one scale, shown at the side.

    Without frames nothing is written.
    """
    drawn: list[list[Tensor]] = []
    legends: list[tuple[Legend, ...]] = []
    for frame, depth, _ in rows:
        truth, prediction = (values.detach().cpu().float() for values in (frame.depth, depth))
        low, high = colour_range(truth)
        maps = [colour_map(values, low, high, NEAR_FAR, log=True) for values in (truth, prediction)]
        error = torch.where(truth > 0, (prediction - truth).abs() / truth.clamp(min=1e-6) + 1e-6, 0)
        maps.append(colour_map(error, 0, WORST, LITTLE_MUCH))
        drawn.append([fit_tile(frame.image, smooth=True), *(fit_tile(each, smooth=False) for each in maps)])
        metres = (f"{end:.2g} m" for end in (low, math.sqrt(low * high), high))
        errors = (f"{part:.0%}" for part in (0.0, WORST / 2, WORST))
        legends.append((Legend(NEAR_FAR, *metres), Legend(LITTLE_MUCH, *errors)))
    _write(drawn, legends, MAPS, path)


def colour_range(truth: Tensor) -> tuple[float, float]:
    """The ends of the colour scale of a depth map: its 2nd and 98th percentiles."""
    known = truth[truth > 0]
    if not len(known):
        return 0.1, 1.0
    order, last = known.sort().values, len(known) - 1
    low, high = float(order[round(0.02 * last)]), float(order[round(0.98 * last)])
    return (low, high) if high > low else (low, low * 1.01)


def colour_map(values: Tensor, low: float, high: float, colours: str, *, log: bool = False) -> Tensor:
    """Map values to colours, uint8 (3, height, width); what is 0 or not finite is unknown and grey.

    :param log: Equal factors, not equal differences, are equal steps of colour.
    """
    known = (values > 0) & values.isfinite()
    if log:
        values, low, high = values.clamp(min=1e-6).log(), math.log(low), math.log(high)
    level = ((values - low) / (high - low)).clamp(0, 1).nan_to_num(0.0)
    mapped = _colour_table(colours)[(255 * level).round().long()]
    return torch.where(known[..., None], mapped, torch.tensor(UNKNOWN, dtype=torch.uint8)).permute(2, 0, 1)


def _colour_table(colours: str) -> Tensor:
    """256 colours, (256, 3)."""
    scale = require("matplotlib", "matplotlib", "study").colormaps[colours]
    return torch.tensor(scale(range(256), bytes=True)[:, :3].copy())


# Points


class Viewpoint(NamedTuple):
    """A camera in the scene: rotation from the frame's axes, position, focal length and centre."""

    turn: Tensor
    place: Tensor
    focal: float
    centre: tuple[float, float]


def write_cloud(row: Row, path: Path) -> None:
    """Write one PNG of one frame, as :func:`write_clouds`."""
    write_clouds([row], path)


def write_clouds(rows: Sequence[Row], path: Path) -> None:
    """Write one PNG, as :func:`write_panel`: the true and the predicted points from one other viewpoint."""
    drawn: list[list[Tensor]] = []
    for frame, depth, camera in rows:
        image, known = frame.image.cpu(), frame.depth.cpu() > 0
        if not known.any():
            known = torch.ones_like(known)
        ways = [(d.detach().cpu().float(), k.detach().cpu().float()) for d, k in (frame[1:], (depth, camera))]
        scenes = [points(d[None], k[None])[0][:, known].T for d, k in ways]
        spacing = [d[known] / float(intrinsics(k[None]).fx) for d, k in ways]
        seen_from = viewpoint(next((scene for scene in scenes if scene[:, 2].any()), scenes[0]), CLOUD)
        drawings = [
            render_points(p, image[:, known].T, s, seen_from, CLOUD) for p, s in zip(scenes, spacing, strict=True)
        ]
        drawn.append([fit_tile(picture, smooth=True) for picture in (image, *drawings)])
    _write(drawn, [()] * len(drawn), CLOUDS, path)


def viewpoint(scene: Tensor, size: tuple[int, int]) -> Viewpoint:
    """A viewpoint above and beside the camera from which nearly all points (count, 3) are visible.

    It looks at the median point, around which the camera is rotated.
    """
    middle = scene.median(0).values
    aside, raised = ((math.cos(a), math.sin(a)) for a in (ASIDE, -RAISED))
    yaw = torch.tensor([[aside[0], 0, -aside[1]], [0, 1, 0], [aside[1], 0, aside[0]]])
    pitch = torch.tensor([[1, 0, 0], [0, raised[0], raised[1]], [0, -raised[1], raised[0]]])
    turn = pitch @ yaw
    place = middle - BACK * middle.norm() * turn[2]
    x, y, z = ((scene - place) @ turn.T).T
    ahead = z > 0.05 * middle.norm()
    ends = [
        (float(s[round(0.01 * (len(s) - 1))]), float(s[round(0.99 * (len(s) - 1))]))
        for s in _sorted_slopes(x, y, z, ahead)
    ]
    wide = [max(high - low, 1e-3) for low, high in ends]
    focal = 0.94 * min(size[1] / wide[0], size[0] / wide[1])
    centre = [length / 2 - focal * (low + high) / 2 for length, (low, high) in zip(size[::-1], ends, strict=True)]
    return Viewpoint(turn, place, focal, (centre[0], centre[1]))


def _sorted_slopes(x: Tensor, y: Tensor, z: Tensor, ahead: Tensor) -> list[Tensor]:
    return [(axis[ahead] / z[ahead]).sort().values for axis in (x, y)]


def render_points(
    scene: Tensor, colours: Tensor, spacing: Tensor, seen_from: Viewpoint, size: tuple[int, int]
) -> Tensor:
    """Draw points as squares, the nearer in front of the farther, uint8 (3, height, width).

    :param scene: (count, 3).
    :param colours: uint8, (count, 3).
    :param spacing: The size of each point in metres, (count,): its distance from its neighbours.
    """
    height, width = size
    x, y, z = ((scene - seen_from.place) @ seen_from.turn.T).T
    kept = (z > 1e-3) & torch.isfinite(x + y + z) & (spacing > 0)
    order = z[kept].argsort(descending=True, stable=True)
    x, y, z, spacing, colours = (values[kept][order] for values in (x, y, z, spacing, colours))
    u, v = (seen_from.focal * axis / z + middle for axis, middle in zip((x, y), seen_from.centre, strict=True))
    side = (OVERLAP * seen_from.focal * spacing / z).ceil().clamp(1, LARGEST)
    left, top = ((place - side / 2 + 0.5).floor() for place in (u, v))
    number = torch.arange(len(z))
    last = torch.full((height * width,), -1)
    widest = int(side.max()) if len(side) else 0
    for down, right in itertools.product(range(widest), repeat=2):
        row, column = top + down, left + right
        hit = (side > max(down, right)) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        last.scatter_reduce_(0, (row * width + column)[hit].long(), number[hit], "amax")
    picture = torch.cat((colours, torch.full((1, 3), PAPER, dtype=torch.uint8)))[last]
    return picture.reshape(height, width, 3).permute(2, 0, 1)


# The file


def _write(
    rows: Sequence[Sequence[Tensor]], legends: Sequence[Sequence[Legend]], titles: Sequence[str], path: Path
) -> None:
    if not rows:
        return
    for count, bits in itertools.product(range(len(rows), 0, -1), (8, 6, 5)):  # photographs make large files
        content = _png(rows[:count], legends[:count], titles, bits)
        if len(content) <= LIMIT:
            break
    write_file(path, content)


def _png(
    rows: Sequence[Sequence[Tensor]], legends: Sequence[Sequence[Legend]], titles: Sequence[str], bits: int
) -> bytes:
    """The tiles in rows on white, titles above, each row's scales to its right."""
    starts = [EDGE + i * (TILE + GAP) for i in range(len(titles))]
    side = SIDE if any(legends) else EDGE
    tall = [max(tile.shape[1] for tile in row) for row in rows]
    tops = [HEAD + top for top in itertools.accumulate((h + GAP for h in tall), initial=0)]
    full = (starts[-1] + TILE + side, tops.pop() - GAP + EDGE)
    canvas = torch.full((3, full[1], full[0]), PAPER, dtype=torch.uint8)
    texts: list[tuple[float, float, str, str]] = [
        (start, HEAD - 6, title, "bottom") for start, title in zip(starts, titles, strict=True)
    ]
    step = 1 << (8 - bits)
    for row, top, height, scales in zip(rows, tops, tall, legends, strict=True):
        for i, (tile, start) in enumerate(zip(row, starts, strict=True)):
            photograph = i == 0 or not scales
            shown = (
                torch.where(tile == PAPER, tile, tile // step * step + step // 2) if photograph and step > 1 else tile
            )
            canvas[:, top : top + tile.shape[1], start : start + tile.shape[2]] = shown
        for i, scale in enumerate(scales):
            left = starts[-1] + TILE + GAP + i * SIDE // 2
            levels = torch.linspace(255, 0, height).round().long()
            canvas[:, top : top + height, left : left + BAR] = _colour_table(scale.colours)[levels].T[:, :, None]
            texts += [
                (left + BAR + 3, top, scale.high, "top"),
                (left + BAR + 3, top + height / 2, scale.middle, "center"),
                (left + BAR + 3, top + height, scale.low, "bottom"),
            ]
    return _figure(canvas, texts)


def _figure(canvas: Tensor, texts: Sequence[tuple[float, float, str, str]]) -> bytes:
    """The picture, pixel by pixel, with its texts at places counted from the upper left."""
    matplotlib: Any = require("matplotlib.figure", "matplotlib", "study")
    _, height, width = canvas.shape
    figure = matplotlib.Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    figure.figimage(canvas.permute(1, 2, 0).numpy(), 0, 0)
    for x, y, text, align in texts:
        figure.text(x / width, 1 - y / height, text, fontsize=SMALL, va=align)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=DPI, metadata={"Software": None})
    return target.getvalue()

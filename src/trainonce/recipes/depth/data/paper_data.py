"""The five large data sets of the paper together, each in HDF5 files or in folders.

Trained on: ScanNet, Argoverse 2 and Waymo. Never trained on, and reported: nuScenes and SUN RGB-D.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainonce.recipes.depth.data import argoverse2, kitti, nuscenes, nyu, scannet, sun_rgbd, waymo
from trainonce.recipes.depth.data.frames import EvaluationSet, Sets
from trainonce.recipes.depth.data.readers import folders, hdf5
from trainonce.recipes.vision.files import contents
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from trainonce.recipes.depth.data.frames import Frames
    from trainonce.recipes.depth.data.readers.frame_files import FrameFiles

DATA_SETS = (scannet, argoverse2, waymo, nuscenes, sun_rgbd, nyu, kitti)
LAYOUTS = {data_set.HDF5.name: data_set.HDF5 for data_set in DATA_SETS}
#: The folder layouts of the five, each once: three data sets share one.
FOLDERS = tuple(dict.fromkeys(each.FOLDERS for each in (scannet, argoverse2, waymo, nuscenes, sun_rgbd)))
TRAINED = ("scannet", "argoverse2", "waymo")
TESTED = ("nuscenes", "sunrgbd")
#: ``"zero-shot"``, as in the paper: SUN RGB-D without the frames that come from NYU Depth V2, which leaves 4,396 of its
#: 5,050. ``"zero-shot-all"``: with them.
PROTOCOLS = ("zero-shot", "zero-shot-all")


def load(
    root: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    trained: Sequence[str] = TRAINED,
    tested: Sequence[str] = TESTED,
    protocol: str = "zero-shot",
) -> Sets:
    """Frames to train on; the first set's test frames choose, the first tested set is the test.

    The test frames of the other trained sets, and the other tested sets, are reported besides.

    :param root: The folder with the HDF5 files (see :data:`LAYOUTS`), or with a folder for each data set, named as
        here, in one of the layouts of :data:`FOLDERS`.
    :param protocol: One of :data:`PROTOCOLS`.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"The protocols are {quoted(PROTOCOLS)}; got {protocol!r}.{did_you_mean(protocol, PROTOCOLS)}")
    for name in (*trained, *tested):
        _check_name(name)
    if not trained or not tested:
        raise ValueError(f"There must be a data set to train on and one to test with; got {trained} and {tested}.")
    missing = [name for name in dict.fromkeys([*trained, *tested]) if not _is_present(root, name)]
    if missing:
        raise ValueError(_missing_text(root, missing))
    training = {name: frames(root, name, training=True, size=size) for name in trained}
    own = {name: _evaluation_set(root, name, size, protocol) for name in trained}
    foreign = {name: _evaluation_set(root, name, size, protocol) for name in tested}
    validation, test = own.pop(trained[0]), foreign.pop(tested[0])
    return Sets(training, validation, test, {**{f"{name}-own": each for name, each in own.items()}, **foreign})


def _evaluation_set(
    root: str | os.PathLike[str], name: str, size: tuple[int, int] | None, protocol: str
) -> EvaluationSet:
    found: Frames = frames(root, name, training=False, size=size)
    if name == sun_rgbd.HDF5.name and protocol == "zero-shot":
        first = found.name(0)
        found = sun_rgbd.without_nyu(found)
        if not len(found):
            rule = f"The test set of SUN RGB-D must have frames outside {sun_rgbd.NYU}, which are NYU Depth V2's"
            raise ValueError(f"{rule}; the first is {first}. To test with those, set protocol=zero-shot-all.")
    return EvaluationSet(found, LAYOUTS[name].range)


def frames(
    root: str | os.PathLike[str], name: str, *, training: bool = True, size: tuple[int, int] | None = None
) -> FrameFiles:
    """The frames of one data set, from its HDF5 files where they are there, else from its folder."""
    _check_name(name)
    if hdf5.is_present(root, LAYOUTS[name]):
        return hdf5.frames(root, LAYOUTS[name], training=training, size=size)
    if _is_present(root, name):
        sequences = LAYOUTS[name].sequences
        return folders.frames(Path(root, name), FOLDERS, training=training, sequences=sequences, size=size)
    raise ValueError(_missing_text(root, [name]))


def _check_name(name: str) -> None:
    if name not in LAYOUTS:
        raise ValueError(f"The large data sets are {quoted(LAYOUTS)}; got {name!r}.{did_you_mean(name, LAYOUTS)}")


def _is_present(root: str | os.PathLike[str], name: str) -> bool:
    return hdf5.is_present(root, LAYOUTS[name]) or folders.is_present(Path(root, name), FOLDERS)


def _missing_text(root: str | os.PathLike[str], names: Sequence[str]) -> str:
    """Where data sets should be, and what is there."""
    places = [f"{name!r} ({LAYOUTS[name].file.replace('#', '0')}, or a folder {name})" for name in names]
    return f"{root} must hold the data set{'s' * (len(names) > 1)} {', '.join(places)}; {contents(Path(root))}"

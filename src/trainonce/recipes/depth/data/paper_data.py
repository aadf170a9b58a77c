"""The large data sets, each in HDF5 files or in folders, and what is trained and tested on them.

Trained on: ScanNet, Argoverse 2 and Waymo. Never trained on, and reported: nuScenes and SUN RGB-D.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainonce.recipes.depth.data.frames import Examined, Sets
from trainonce.recipes.depth.data.readers import folders, hdf5
from trainonce.recipes.vision.files import contents
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from trainonce.recipes.depth.data.readers.frame_files import Stored

TRAINED = ("scannet", "argoverse2", "waymo")
TESTED = ("nuscenes", "sunrgbd")


def load(
    root: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    trained: Sequence[str] = TRAINED,
    tested: Sequence[str] = TESTED,
) -> Sets:
    """Frames to train on; the first set's test frames choose, the first tested set is the test.

    The test frames of the other trained sets, and the other tested sets, are reported besides.

    :param root: The folder with the HDF5 files (see :data:`.hdf5.LAYOUTS`), or with a folder for each data set, named
        as here, in one of the layouts of :mod:`.folders`.
    """
    for name in (*trained, *tested):
        if name not in hdf5.LAYOUTS:
            hint = did_you_mean(name, hdf5.LAYOUTS)
            raise ValueError(f"The large data sets are {quoted(hdf5.LAYOUTS)}; got {name!r}.{hint}")
    if not trained or not tested:
        raise ValueError(f"There must be a data set to train on and one to test with; got {trained} and {tested}.")
    missing = [name for name in dict.fromkeys([*trained, *tested]) if not _present(root, name)]
    if missing:
        raise ValueError(_expected(root, missing))
    training = {name: frames(root, name, training=True, size=size) for name in trained}
    own = {name: _examined(root, name, size) for name in trained}
    foreign = {name: _examined(root, name, size) for name in tested}
    validation, test = own.pop(trained[0]), foreign.pop(tested[0])
    return Sets(training, validation, test, {**{f"{name}-own": each for name, each in own.items()}, **foreign})


def _examined(root: str | os.PathLike[str], name: str, size: tuple[int, int] | None) -> Examined:
    return Examined(frames(root, name, training=False, size=size), hdf5.LAYOUTS[name].range)


def frames(root: str | os.PathLike[str], name: str, *, training: bool, size: tuple[int, int] | None = None) -> Stored:
    """The frames of one data set, from its HDF5 files where they are there, else from its folder."""
    if hdf5.present(root, name):
        return hdf5.frames(root, name, training=training, size=size)
    if _present(root, name):
        return folders.frames(Path(root, name), training=training, size=size)
    raise ValueError(_expected(root, [name]))


def _present(root: str | os.PathLike[str], name: str) -> bool:
    return hdf5.present(root, name) or folders.present(Path(root, name))


def _expected(root: str | os.PathLike[str], names: Sequence[str]) -> str:
    """Where data sets should be, and what is there."""
    places = [f"{name!r} ({hdf5.LAYOUTS[name].file.replace('#', '0')}, or a folder {name})" for name in names]
    return f"{root} must hold the data set{'s' * (len(names) > 1)} {', '.join(places)}; {contents(Path(root))}"

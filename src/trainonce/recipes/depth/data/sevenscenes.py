"""7-Scenes: recordings of a kitchen with a hand-held camera, reported on and never trained on.

Archive ``sevenscenes_redkitchen_320``: ``rgb/NAME.jpg``, ``depth/NAME.png`` and ``meta.json``; depth is in
millimetres, in 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.recipes.depth.data.readers import archives

if TYPE_CHECKING:
    import os

    from trainonce.recipes.depth.data.readers.frame_files import FrameFiles

ARCHIVE = "sevenscenes_redkitchen_320"


def frames(root: str | os.PathLike[str], size: tuple[int, int] | None = None) -> FrameFiles | None:
    """All frames; None where the archive is not there."""
    return archives.frames(root, ARCHIVE, size)

"""Miniatures of Cityscapes, ACDC and CamVid, written once and only read."""

import pytest

from trainonce.recipes.segmentation.data.made_up import LAYOUTS, write_acdc, write_camvid, write_cityscapes


@pytest.fixture(scope="session")
def streets(tmp_path_factory):
    """Cityscapes and ACDC side by side, to be read only."""
    root = tmp_path_factory.mktemp("data")
    write_cityscapes(root / "cityscapes")
    write_acdc(root / "ACDC", frames=1)
    return root


@pytest.fixture(scope="session")
def cambridge(tmp_path_factory):
    """CamVid in every layout, to be read only."""
    root = tmp_path_factory.mktemp("cambridge")
    for layout in LAYOUTS:
        write_camvid(root / layout, layout, frames=2)
    return root

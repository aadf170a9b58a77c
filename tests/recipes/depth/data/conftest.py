"""Miniatures of the five large data sets, written once and only read."""

import pytest

from trainonce.recipes.depth.data.made_up.folders import write_folders
from trainonce.recipes.depth.data.made_up.hdf5 import write_hdf5


@pytest.fixture(scope="session")
def hdf5_root(tmp_path_factory):
    """The five large data sets in HDF5, to be read only, and what is in them."""
    root = tmp_path_factory.mktemp("hdf5")
    return root, write_hdf5(root)


@pytest.fixture(scope="session")
def folder_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    return root, write_folders(root)

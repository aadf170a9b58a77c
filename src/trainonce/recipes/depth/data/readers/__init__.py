"""Readers of encoded frames, whichever data set they are from: HDF5 files, folders, zip archives."""

"""MultiFashion: the classes of two overlapping pieces of clothing."""

from benchmarks.arena.tasks._pairs import pairs

TASK = pairs("multifashion", "fashion", lr=1e-2)

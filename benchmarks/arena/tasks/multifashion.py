"""MultiFashion: the classes of two overlapping pieces of clothing."""

from benchmarks.arena.tasks._pairs import pairs

TASK = pairs("multifashion", "fashion", lr=3e-3)

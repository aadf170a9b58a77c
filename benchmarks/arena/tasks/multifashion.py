"""MultiFashion: the classes of two overlapping pieces of clothing."""

from benchmarks.arena.tasks._pairs import pairs

# Validation with Adam at 3e-4, 1e-3, 3e-3, 1e-2: 62.1, 70.6, 75.1, 77.5.
TASK = pairs("multifashion", "fashion", lr=1e-2)

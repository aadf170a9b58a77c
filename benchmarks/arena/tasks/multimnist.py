"""MultiMNIST: the classes of two overlapping digits."""

from benchmarks.arena.tasks._pairs import pairs

TASK = pairs("multimnist", "mnist", lr=3e-3)

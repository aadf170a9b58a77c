"""MultiMNIST: the classes of two overlapping digits."""

from benchmarks.arena.tasks._pairs import pairs

TASK = pairs("multimnist", "mnist", lr=1e-2)

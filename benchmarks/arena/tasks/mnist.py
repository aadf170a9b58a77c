"""MNIST with 200 labels, tested on shifted noisy images: cross-entropy, consistency, rotation."""

from benchmarks.arena.tasks._few_labels import few_labels

TASK = few_labels("mnist", lr=1e-2, sgd_lr=0.3)

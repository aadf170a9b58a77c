"""One trial from its claim to its record."""

import torch

from trainonce.study.executors import run_trial


def test_a_device_that_works_answers_and_one_that_is_not_there_does_not():
    assert run_trial.device_works("cpu")
    assert not run_trial.device_works("meta")  # from which nothing can be read


def test_a_full_device_is_not_a_dead_one(monkeypatch):
    def full(*given, **more):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "zeros", full)
    assert run_trial.device_works("cpu")

"""Trials in this process."""

import dataclasses

import _tasks
import pytest
from _runs import records, study

from trainonce.fixed import FixedLoss
from trainonce.study import runner
from trainonce.study.executors import run_trial


def test_a_device_that_fails_for_good_is_recorded_and_ends_the_study_in_one_sentence(tmp_path, monkeypatch):
    """As after an illegal memory access: nothing on the GPU can be read any more, the weights neither."""

    def unreadable(self):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    class Dead(FixedLoss):
        weights = property(unreadable)

    def broken(trial, **settings):
        trial.criterion().__class__ = Dead
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(run_trial, "device_works", lambda device: False)
    made = study(tmp_path, dataclasses.replace(_tasks.line, function=broken, version=1), plans=["uniform"], seeds=3)
    with pytest.raises(runner.StoppedError, match=r"cpu does not answer .*; start the study again"):
        made.run(workers=0, show=False)
    (record,) = records(tmp_path)
    assert (record.status, record.coefficients) == ("failed", ())
    assert "illegal memory access" in record.error["message"]

"""The options of the executor for Slurm, as sbatch gets them. Without submitit."""

import sys

import _tasks
import pytest
from _runs import study

from trainonce.study.executors.slurm.parameters import local_parameters, slurm_parameters, wants_gpu
from trainonce.study.executors.tools import Tools


def choose(**options):
    return Tools.choose(_tasks.line, executor="slurm", options=options)


def test_the_options_are_submitits_parameters():
    found = slurm_parameters({"gpus": 2, "cpus": 4, "time": "1-12", "sbatch": "qos=high"}, "name", 8)
    assert (found["gpus_per_node"], found["cpus_per_task"], found["time"]) == (2, 4, 2160)
    assert found["srun_args"] == ["--cpus-per-task=4"]
    assert found["additional_parameters"] == {"requeue": True, "qos": "high"}
    assert "requeue" not in slurm_parameters({"sbatch": "no-requeue"}, "name", 8)["additional_parameters"]
    assert slurm_parameters({"time": 1}, "name", 8)["signal_delay_s"] == 20


@pytest.mark.parametrize(
    ("options", "device"),
    [({}, "cpu"), ({"gpus": 1}, "cuda"), ({"gres": "gpu:a100:1"}, "cuda"), ({"gres": "lustre,shard:1"}, "cuda")],
)
def test_a_gpu_of_any_kind_is_trained_on(options, device):
    assert choose(**options).devices == (device,)
    assert wants_gpu(options) == (device == "cuda")
    assert not wants_gpu({"gres": "license:gpu_tool:1"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"time": "soon"}, r"^The option 'time' must be minutes or a time as 12:00:00 or 2-12; got 'soon'\.$"),
        ({"mem": "much"}, r"^The option 'mem' must be a size, such as 16G; got 'much'\.$"),
        ({"sbatch": "qos="}, r"^The option 'sbatch' must be options of sbatch, such as .*; got 'qos='\.$"),
        ({"cluster": "pbs"}, r"^The option 'cluster' must be one of 'slurm', 'local', 'debug'; got 'pbs'\.$"),
        ({"partition": ""}, r"^The option 'partition' must be the name of a partition; got ''\.$"),
    ],
)
def test_options_that_cannot_be_read_are_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        choose(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cpus": 0.5}, r"^The executor 'slurm' takes 'cpus' as a whole number of at least 1; got 0\.5\.$"),
        ({"gpus": 0.5}, r"^The executor 'slurm' takes 'gpus' as a whole number of at least 0; got 0\.5\.$"),
        ({"sbatch": "time=10"}, r"^The option 'sbatch' must not hold 'time': use --time\.$"),
        ({"sbatch": "ntasks=2"}, r"must not hold 'ntasks': a training is one task on one node\.$"),
        ({"sbatch": "gres=gpu:1"}, r"^The option 'sbatch' must not hold 'gres': use --gres\.$"),
        ({"sbatch": "mem=4G"}, r"must not hold 'mem': use --mem\.$"),
        ({"sbatch": "partition=gpu"}, r"must not hold 'partition': use --partition\.$"),
        ({"sbatch": "account=us"}, r"must not hold 'account': use --account\.$"),
        ({"sbatch": "wait"}, r"must not hold 'wait': the driver waits for its jobs itself\.$"),
        ({"cluster": "local", "gpus": 1}, r"^With --cluster local and --gpus 1 all trainings .* GPU of its own\.$"),
        ({"cluster": "local", "gres": "gpu:1"}, r"^The option 'gres' asks for 'gpu:1', which --cluster local does not"),
        ({"max_concurrent": 10**9}, r"^max_concurrent=1000000000 needs a file for each training, and .* ulimit -n\.$"),
    ],
)
def test_what_slurm_cannot_do_is_one_sentence_and_nothing_is_left(tmp_path, options, sentence):
    made = study(tmp_path, plans=["uniform"])
    with pytest.raises(ValueError, match=sentence):
        made.run(executor="slurm", options=options, show=False, device=None)
    assert not (tmp_path / "slurm").exists()


def test_a_job_on_this_machine_has_the_gpus_that_are_visible_here():
    assert local_parameters({"gpus": 1}, 1, "3,5")["visible_gpus"] == [3, 5]
    assert "visible_gpus" not in local_parameters({"gpus": 1}, 1, None)
    assert "visible_gpus" not in local_parameters({}, 16, "3,5")


def test_without_submitit_the_pip_line_is_shown(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(
        ImportError, match=r'^This needs submitit, which is not installed: pip install "trainonce\[slurm'
    ):
        study(tmp_path, plans=["uniform"]).run(executor="slurm", options={"cluster": "local"}, show=False, device=None)

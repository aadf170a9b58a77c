"""What a training started ends with it, also when it is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import multiprocessing, os, sys, time
import torch
from types import SimpleNamespace
from trainonce.recipes.vision.loading import data_loader

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        return os.getpid()

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    for pid in data_loader(Numbers(), SimpleNamespace(readers=1), torch.device("cpu")):
        print(pid, flush=True)
        time.sleep(0.2)
"""


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_readers_end_with_their_training(start, how, tmp_path):
    script = tmp_path / "training.py"
    script.write_text(SCRIPT)
    given = [sys.executable, str(script), start]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as training:
        reader = int(training.stdout.readline())
        assert reader != training.pid
        assert is_there(reader)
        training.send_signal(how)
        training.wait(30)
    deadline = time.monotonic() + 20
    while is_there(reader) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_there(reader)

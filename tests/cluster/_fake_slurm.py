"""As much of Slurm as submitit and the executor use, on this machine: its commands, and a process for each job.

``install`` writes the commands sbatch, srun, squeue, sacct, scancel and scontrol into a folder. A job is a JSON file
with its state; what is wanted of it is a file beside it: cancel, requeue, or a state such as NODE_FAIL or LOST. A
minute of a job's time is as long as FAKE_MINUTE says, in seconds.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol")


def install(folder):
    for command in COMMANDS:
        path = folder / command
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {__file__} {command} "$@"\n')
        path.chmod(0o755)


def root():
    return Path(os.environ["FAKE_SLURM"])


def write_state(job, state):
    beside = root() / f"{job}.part{os.getpid()}"
    beside.write_text(json.dumps({"state": state}))
    beside.replace(root() / f"{job}.json")


def states():
    return {path.stem: json.loads(path.read_text())["state"] for path in sorted(root().glob("*.json"))}


def sbatch(script):
    if (root() / "refuse").exists():
        sys.exit((root() / "refuse").read_text())
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", Path(script).read_text(), re.MULTILINE))
    if asked.get("partition") == "nowhere":
        sys.exit("sbatch: error: invalid partition specified: nowhere\nsbatch: error: Batch job submission failed: no")
    number = 1
    while True:
        try:
            (root() / f"number-{number}").open("x").close()
            break
        except FileExistsError:
            number += 1
    (root() / f"number-{number}").write_text(Path(script).read_text())
    count = int(re.match(r"0-(\d+)", asked["array"])[1]) + 1 if "array" in asked else 0
    for index in range(count) if count else (None,):
        job = str(number) if index is None else f"{number}_{index}"
        write_state(job, "PENDING")
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        given = [sys.executable, "-S", "-E", __file__, "node", job, script, json.dumps(asked)]
        subprocess.Popen(given, start_new_session=True, **quiet)
    print(f"Submitted batch job {number}")


def node(job, script, asked):
    """The life of a job on its node, and again after it was requeued."""
    while (root() / "full").exists():
        if (wanted := take_wish(job)) is not None:
            write_state(job, "CANCELLED" if wanted == "cancel" else wanted)
            return
        time.sleep(0.05)
    script = root() / f"number-{job.partition('_')[0]}"
    while run_once(job, script, json.loads(asked)) == "requeue":
        write_state(job, "PENDING")
    if states().get(job) == "LOST":
        (root() / f"{job}.json").unlink()


def run_once(job, script, asked):
    number, _, index = job.partition("_")
    environment = os.environ | {"SLURM_JOB_ID": number, "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "FAKE_JOB": job}
    if index:
        environment |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index, "SLURM_JOB_ID": f"9{number}{index}"}
    process = subprocess.Popen(["bash", str(script)], env=environment, start_new_session=True)
    write_state(job, "RUNNING")
    minute, start, told = float(os.environ.get("FAKE_MINUTE", 60)), time.monotonic(), False
    limit, delay = int(asked["time"]) * minute, int(asked["signal"].partition("@")[2]) * minute / 60
    while process.poll() is None:
        wanted, passed = take_wish(job), time.monotonic() - start
        if wanted == "requeue":
            end(process, job, signal.SIGTERM)
            return "requeue"
        if wanted == "cancel" or passed > limit:
            end(process, job, signal.SIGTERM)
            write_state(job, "TIMEOUT" if passed > limit else "CANCELLED")
            return "ended"
        if wanted is not None:
            end(process, job, signal.SIGKILL)
            write_state(job, wanted)
            return "ended"
        if passed > limit - delay and not told:
            told = tell(job, signal.SIGUSR2)
        time.sleep(0.05)
    if take_wish(job) == "requeue":
        return "requeue"
    write_state(job, "FAILED" if process.returncode else "COMPLETED")
    return "ended"


def take_wish(job):
    path = root() / f"{job}.wish"
    try:
        wanted = path.read_text()
        path.unlink()
    except FileNotFoundError:
        return None
    return wanted


def wish(job, what):
    beside = root() / f"{job}.wish{os.getpid()}"
    beside.write_text(what)
    beside.replace(root() / f"{job}.wish")


def tell(job, number):
    try:
        os.kill(int((root() / f"{job}.step").read_text()), number)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return False
    return True


def end(process, job, number):
    tell(job, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def srun(*arguments):
    words, output = list(arguments), None
    while words[0].startswith("--"):
        option = words.pop(0)
        if option == "--output":
            output = words.pop(0)
    job = os.environ["FAKE_JOB"]
    number, _, index = job.partition("_")
    for mark, value in {"%j": job, "%A": number, "%a": index, "%t": "0"}.items():
        output = output.replace(mark, value)
    (root() / f"{job}.step").write_text(str(os.getpid()))
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.execvp(words[0], words)


def squeue(*_):
    for job, state in states().items():
        print(f"{job}|{state}")


def sacct(*_):
    print("JobID|State|NodeList")


def scancel(*jobs):
    for job in jobs:
        wish(job, "cancel")


def scontrol(what, job):
    wish(job, what)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

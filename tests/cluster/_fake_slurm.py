"""As much of Slurm as submitit and the executor use, on this machine: its commands, and a process for each job.

``install`` writes the commands sbatch, srun, squeue, sacct, scancel and scontrol into a folder. A job is a JSON file
with its state; what is wanted of it is a file beside it: cancel, requeue, or a state such as NODE_FAIL or LOST. A
minute of a job's time is as long as FAKE_MINUTE says, in seconds. Of what the real commands take, these know what is
used here, and refuse the rest; where the real ones would show less without an option, so do these.

Files in its folder change the cluster: ``refuse`` (what sbatch says), ``full`` (jobs wait), ``reason`` (why they do),
``forgotten`` (the queue shows no jobs that have ended, as some minutes later).
"""

import argparse
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
    (root() / f"environment-{number}").write_text(json.dumps(dict(os.environ)))
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
    asked = parser("srun", "--unbuffered", "--output=", "--cpus-per-task=")
    asked.add_argument("command", nargs=argparse.REMAINDER)
    given = asked.parse_args(arguments)
    words, output = given.command, given.output
    job = os.environ["FAKE_JOB"]
    number, _, index = job.partition("_")
    for mark, value in {"%j": job, "%A": number, "%a": index, "%t": "0"}.items():
        output = output.replace(mark, value)
    (root() / f"{job}.step").write_text(str(os.getpid()))
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.execvp(words[0], words)


def parser(command, *options):
    """The options of a command, those with a value with an equals sign; others end it with an error."""
    made = argparse.ArgumentParser(prog=command, allow_abbrev=False)
    for option in options:
        name = option.removesuffix("=")
        made.add_argument(name, **({} if option.endswith("=") else {"action": "store_true"}))
    return made


ACTIVE = ("PENDING", "RUNNING")


def squeue(*arguments):
    asked = parser("squeue", "--noheader", "--array", "--states=", "--format=", "--user=").parse_args(arguments)
    if asked.user not in (None, str(os.getuid())):
        sys.exit(f"squeue: error: Invalid user: {asked.user}")
    forgotten = (root() / "forgotten").exists()
    found = {job: state for job, state in states().items() if state in ACTIVE or not forgotten}
    if asked.states != "all":
        found = {job: state for job, state in found.items() if state in ACTIVE}
    why = (root() / "reason").read_text() if (root() / "reason").exists() else "Resources"
    if not asked.noheader:
        print("JOBID|STATE|REASON")
    for job, state in found.items():
        number, _, index = job.partition("_")
        shown = job if asked.array or not index or state != "PENDING" else f"{number}_[{index}]"
        line = {"%i": shown, "%T": state, "%r": why if state == "PENDING" else "None"}
        print("".join(line[part] if part.startswith("%") else part for part in re.split("(%[a-zA-Z])", asked.format)))


def sacct(*arguments):
    asked = parser("sacct", "--parsable2")
    asked.add_argument("-o", dest="fields", required=True)
    asked.add_argument("-j", dest="jobs", action="append", required=True)
    given = asked.parse_args(arguments)
    print("|".join(fields := given.fields.split(",")))
    for job, state in states().items():
        if job.partition("_")[0] in given.jobs:
            shown = f"CANCELLED by {os.getuid()}" if state == "CANCELLED" else state
            for step in ("", ".batch", ".extern"):
                line = {"JobID": job + step, "State": shown if not step else "COMPLETED", "NodeList": "n1"}
                print("|".join(line[field] for field in fields))


def scancel(*jobs):
    for job in jobs:
        if not re.fullmatch(r"\d+(_\d+)?", job):
            sys.exit(f"scancel: error: Invalid job id {job}")
    for job in jobs:
        wish(job, "cancel")


def scontrol(what, job):
    if what != "requeue" or job not in states():
        sys.exit(f"scontrol: error: invalid entity or job: {what} {job}")
    wish(job, what)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

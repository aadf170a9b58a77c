"""The names of all files in the folder of a study, written here and nowhere else.

::

    trials.jsonl     one line per trial that ended, appended and synced to disk
    study.json       the task and the plans, for the report
    claims           empty; its bytes are locked: one for each running trial, for the manifest, the records, the page
    workers/         an empty file for each process that works on the study, which it has locked
    trials/KEY/      a trial's own folder
        history.jsonl    losses and coefficients of every step
        curves.bin       the same as figures draw it, the means of successive steps; written when the trial has ended
        checkpoint.pt    where an interrupted trial goes on; removed when it has ended
        trainer/         the checkpoint of a Trainer, which checkpoint.pt names; removed with it
        spent.json       what the trial has cost so far that no record counts; removed when it has ended
        pictures/        PNG files that the report shows
        network.pt       the trained network, where the task keeps it; ``trainonce evaluate`` loads it
    logs/KEY.txt     what a trial printed
    report.html      the report, with figures/, summary.json and trials.csv
"""

from __future__ import annotations

import hashlib
import re

RECORDS = "trials.jsonl"
MANIFEST = "study.json"
CLAIMS = "claims"
TRIALS = "trials"
LOGS = "logs"
WORKERS = "workers"

# In a trial's folder
HISTORY = "history.jsonl"
CURVES = "curves.bin"
CHECKPOINT = "checkpoint.pt"
TRAINER = "trainer"
SPENT = "spent.json"
PICTURES = "pictures"
NETWORK = "network.pt"

# Written by the report
REPORT = "report.html"
SUMMARY = "summary.json"
TABLE = "trials.csv"
FIGURES = "figures"


def default_folder(task: str) -> str:
    """The folder for the studies of a task: its name, or one like it and unique where a folder cannot have that name.

    >>> default_folder("digits"), default_folder("a/../b")
    ('digits', 'a-..-b-900ea8b7')
    """
    plain = re.sub(r'[/\\:*?"<>|]+', "-", task).encode()[:100].decode("utf-8", "ignore").strip(". ")
    return plain if plain == task else f"{plain}-{hashlib.sha256(task.encode()).hexdigest()[:8]}".strip("-")

"""Run an example as its reader does, and read what it prints."""

import importlib.util
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples"
ROW = re.compile(r"^  (\w+) +([-+\d.e]+) +([-+\d.e]+)(?: +[-+\d.e]+)?(?: +\(base\))?$", re.MULTILINE)


def load(name):
    """The module of the example with that name."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ratios(printed):
    """The ratios to the base of the criterion that was printed, by term."""
    return {term: float(ratio) for term, _, ratio in ROW.findall(printed)}


def last_number(printed):
    """The number that the example ends with."""
    return float(re.findall(r"\d+\.\d+", printed.splitlines()[-1])[-1])

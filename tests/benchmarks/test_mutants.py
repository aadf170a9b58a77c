"""The faults that benchmarks/mutants.py plants, and that it tells those that are noticed from those that are not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import _faults
import pytest

BENCHMARKS = Path(_faults.__file__).parent

SOURCE = '''
"""Text with == and 1."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import abc


def clip(values: "list[1]", low: float = 0.0, *, ends: bool = True) -> "1 + 1":
    """Not 1 < 2."""
    if low < 0 or not values:
        raise ValueError(f"{low + 1} is {'too' + ' low'}")
    kept = [value for value in values if value is not None]
    kept.sort()
    return max(kept[: len(values)], key=abs) - low  # ä < ö
'''


def faults_of(tmp_path, source):
    (tmp_path / "file.py").write_text(source)
    return _faults.find_mutants(str(tmp_path / "file.py"))


def test_the_faults_of_a_function(tmp_path):
    assert [(fault.line, fault.operator) for fault in faults_of(tmp_path, SOURCE)] == [
        (9, "0.0 -> 1.0"),
        (9, "True -> False"),
        (11, "0 -> 1"),
        (11, "< -> <="),
        (11, "condition -> False"),
        (11, "condition -> True"),
        (11, "or -> and"),
        (11, "without not"),
        (13, "condition -> True"),
        (13, "is not -> is"),
        (14, "statement -> pass"),
        (15, "- -> +"),
        (15, "len(values) -> + 1"),
        (15, "max -> min"),
        (15, "return None"),
        (15, "without key="),
    ]


@pytest.mark.parametrize(
    ("line", "faulty"),
    [
        ("x = (a) and (b)", {"x = (a) or (b)"}),
        ("x = 'ä', a not in b", {"x = 'ä', a in b"}),
        ("x = a is  not b", {"x = a is b"}),
        ("x += 2", {"pass", "x -= 2", "x += 3"}),
        ("x = -y", {"x = y"}),
        ("x = f(a, k=b, *c)", {"x = f(a, *c)"}),
        ("x = f(k=b)", {"x = f()"}),
        ("x = f(a, k=b,)", {"x = f(a,)"}),
        ("x = y.detach()", {"x = y"}),
        ("with torch.no_grad(): pass", {"with torch.enable_grad(): pass"}),
        ("x = y.mean()", {"x = y.sum()"}),
        ("x = y if a else b", {"x = y if True else b", "x = y if False else b"}),
        ("x = 'a' + b", set()),
    ],
)
def test_a_fault_changes_its_place_and_no_other_byte(tmp_path, line, faulty):
    around = "# ü\n{}\nlast = 'ö'\n"
    source = around.format(line)
    found = {fault.apply(source.encode()).decode() for fault in faults_of(tmp_path, source)}
    assert found == {around.format(text) for text in faulty}


def test_a_fault_is_known_by_its_line_wherever_the_line_moves(tmp_path):
    before = [fault.id for fault in faults_of(tmp_path, "a = b < c\na = b < c\n")]
    assert len(set(before)) == 2
    assert [fault.id for fault in faults_of(tmp_path, "import d\n\na = b < c\na = b < c\n")] == before


def test_faults_that_tests_notice_are_killed_and_the_others_survive(tmp_path):
    for folder in ("src/trainonce", "tests", "benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("mutants.py", "_faults.py"):
        shutil.copy(BENCHMARKS / name, tmp_path / "benchmarks")
    (tmp_path / "src/trainonce/__init__.py").touch()
    (tmp_path / "src/trainonce/text.py").write_text(
        "def below(a, b):\n    while a > 9:\n        a -= 3\n    return a < b\n"
    )
    (tmp_path / "tests/test_text.py").write_text(
        "from trainonce.text import below\n\ndef test_below():\n    assert below(1, 2) and not below(2, 1)\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow', 'dist', 'gpu']\n")
    script = "import sys; sys.path.insert(0, 'benchmarks'); import mutants; mutants.HEAVY = (); mutants.main()"
    command = [sys.executable, "-c", script, "--jobs", "2", "--out", "out.jsonl"]
    environment = os.environ | {"PYTHONPATH": "src", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    said = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=True).stdout
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {result["operator"]: result["outcome"] for result in results if result["line"] == 4} == {
        "return None": "killed",
        "< -> <=": "survived",
    }
    assert {result["outcome"] for result in results if result["line"] in (2, 3)} == {"survived"}
    assert "survived: src/trainonce/text.py:4  < -> <=\n    return a < b\n" in said

    (tmp_path / "benchmarks/mutants_equivalent.jsonl").write_text(json.dumps({"id": results[0]["id"], "reason": ""}))
    again = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=True).stdout
    assert again.startswith(f"{len(results) - 1} faults, 0 to test, 1 known to be equivalent")

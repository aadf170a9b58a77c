"""How the command starts: at once, where nothing is to be trained."""

import subprocess
import sys

import pytest

CHECK = """
import sys
from trainonce.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
heavy = [name for name in ("torch", "numpy", "matplotlib", "rich", "optuna") if name in sys.modules]
print(code, *heavy)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("compare --help", 0),
        ("plans", 0),
        ("explain", 0),
        ("explain never-stepped", 0),
        ("explain nothing", 2),
        ("compare", 2),
        ("compare digits --seeds none", 2),
        ("compare digit", 1),
        ("compare none.py", 1),
        ("compare digits --plans gird", 1),
        ("report nowhere", 1),
    ],
)
def test_help_lists_and_mistakes_take_no_torch(arguments, code, tmp_path):
    command = [sys.executable, "-c", CHECK, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == str(code), done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())

"""The examples that need no trainer run and learn something, and so does the notebook."""

import ast
import json
import re

import pytest
from _examples import FOLDER, last_number, load, ratios

from trainonce.study import Summary

SCRIPTS = sorted(FOLDER.glob("*.py"))
NOTEBOOK = FOLDER / "digits_study.ipynb"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_and_says_how_to_run_it(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 80
    assert max(map(len, lines)) < 100
    assert f" examples/{path.name}" in ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_importing_a_script_runs_nothing(path):
    """At the top level are definitions, constants, and the call of main behind its guard, nothing else."""
    docstring, *body, guard = ast.parse(path.read_text(encoding="utf-8")).body
    assert isinstance(docstring, ast.Expr)
    assert ast.unparse(guard) == "if __name__ == '__main__':\n    main()"
    for node in body:
        assert isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign)
        if isinstance(node, ast.Assign):
            assert not any(isinstance(part, ast.Call) for part in ast.walk(node))


def test_the_readme_lists_every_example():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+\.(?:py|ipynb))\)", text)) == {path.name for path in [*SCRIPTS, NOTEBOOK]}
    for path in SCRIPTS:
        assert f" examples/{path.name}\n" in text


@pytest.mark.parametrize("path", [FOLDER / "README.md", NOTEBOOK], ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert targets
    for target in targets:
        assert (FOLDER / target).is_file(), target


@pytest.mark.parametrize(
    ("name", "terms", "steps"),
    [("plain_torch", ["frequency", "wave"], 150), ("pinn", ["initial", "residual", "boundary"], 300)],
)
def test_a_script_learns(name, terms, steps, capsys):
    example = load(name)
    example.main(steps=1)
    untrained = last_number(capsys.readouterr().out)
    example.main(steps=steps)
    printed = capsys.readouterr().out
    assert last_number(printed) < untrained / 2
    found = ratios(printed)
    assert list(found) == terms
    assert all(abs(found[term] - 1) > 0.01 for term in terms[1:])  # they start at 1


def test_the_study_answers_and_writes_its_report(tmp_path, capsys):
    load("own_study").main(steps=30, seeds=2, out=tmp_path / "study")
    printed = " ".join(capsys.readouterr().out.split())
    assert "the paper's rule" in printed
    assert "best of 3 grid points" in printed
    assert "<svg" in (tmp_path / "study" / "report.html").read_text(encoding="utf-8")
    rows = {row.plan: row.chosen for row in Summary.read(tmp_path / "study").rows}
    assert all(len(chosen.report) == 2 for chosen in rows.values())
    assert rows["yoto"].mean < 75  # always predicting the mean gives 77
    assert rows["yoto"].ratios[1] < 0.997  # they start equal


# The notebook


def cells():
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_executed_and_small():
    outputs = [output for cell in cells() for output in cell["outputs"]]
    assert all(cell["outputs"] for cell in cells())
    assert "error" not in {output["output_type"] for output in outputs}
    assert "stderr" not in {output.get("name") for output in outputs}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    assert NOTEBOOK.stat().st_size < 300_000


def test_the_notebook_shows_no_path_of_a_machine():
    text = re.sub(r'"image/png": "[^"]*"', "", NOTEBOOK.read_text(encoding="utf-8"))
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|usr|Users)\b", text)


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "notebook"}
    for cell in cells():
        exec("".join(cell["source"]), namespace)
    assert "ne run of the paper's rule" in capsys.readouterr().out
    assert (tmp_path / "out" / "digits_study" / "report.html").is_file()
    of_plan = {row.plan: row.chosen.mean for row in namespace["summary"].rows}
    assert of_plan["yoto"] > of_plan["base"]

"""The paper's Table 1 and Fig. 1 and 2, drawn from a study in which the paper's own numbers are planted."""

import dataclasses
import math
import re

import _stores
import dynamics
import metrics_table
import pytest
import records
import starts

from trainonce.study import Summary
from trainonce.study.rules import fixed

TERMS = ("depth", "camera", "invariance")
SETS = {"test": "nuScenes", "sunrgbd": "SUN-RGBD"}
METRICS = ("delta_1", "si_log", "f_a")
#: delta_1, si_log and f_a on nuScenes and on SUN-RGBD of each point of the grid, as the paper prints them.
GRID = {
    (0.01, 0.01): (43.8, 25.32, 41.1, 91.5, 8.24, 75.7),
    (0.01, 0.1): (45.9, 25.25, 42.1, 92.1, 8.17, 76.1),
    (0.01, 1): (44.8, 25.86, 41.5, 92.8, 8.20, 76.3),
    (0.25, 0.01): (45.5, 25.23, 41.1, 92.0, 8.12, 76.1),
    (0.25, 0.1): (48.5, 25.19, 43.1, 92.2, 8.15, 76.4),
    (0.25, 1): (45.9, 25.82, 42.2, 92.2, 8.17, 76.2),
    (1, 0.01): (44.4, 25.36, 40.7, 92.6, 8.09, 76.6),
    (1, 0.1): (45.1, 25.27, 41.6, 92.5, 8.08, 76.9),
    (1, 1): (48.4, 25.51, 43.4, 92.3, 8.17, 76.5),
}
LEARNED = (49.9, 25.07, 43.8, 92.3, 8.08, 76.7)
ENDS = (0.91444, 0.04280, 0.04276)
STARTS = (0.001, 0.01, 0.1, 1.0, 10.0)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    rules = {fixed((1.0, *ratios)): values for ratios, values in GRID.items()} | {_stores.yoto(): LEARNED}

    def as_printed(record):
        if record.rule not in rules:
            return record
        names = [f"{one}/{metric}" for one in SETS for metric in METRICS]
        metrics = dict(zip(names, rules[record.rule], strict=True))
        ends = record.coefficients if record.rule.is_fixed else ENDS
        return dataclasses.replace(record, metrics=record.metrics | metrics, coefficients=ends)

    plans = [
        _stores.plan("yoto", "rule", [_stores.yoto()]),
        _stores.plan("grid-3x3", "set", [rule for rule in rules if rule.is_fixed]),
        _stores.plan("replay", "control", [_stores.replay(_stores.yoto())]),  # it needs a run of another seed
        _stores.plan("sweep-init", "sweep", [_stores.yoto(init=init, decay=3.0) for init in STARTS]),
    ]
    path = tmp_path_factory.mktemp("study")
    return _stores.build(path, terms=TERMS, plans=plans, seeds=(0,), change=as_printed, metric="delta_1")


def marked(line):
    """The columns of a row with the best value, and with the second best."""
    cells = [cell.strip() for cell in line.strip("|").split("|")][3:]
    best = [i for i, cell in enumerate(cells) if re.fullmatch(r"\*\*.*\*\*", cell)]
    return best, [i for i, cell in enumerate(cells) if re.fullmatch(r"\*[^*]*\*", cell)]


@pytest.mark.parametrize("packed", [False, True])
def test_the_best_and_the_second_best_are_those_that_the_paper_marks(study, tmp_path, packed):
    if packed:
        records.pack(study, tmp_path / "study.tar.xz")
    table, _ = metrics_table.comparison(tmp_path / "study.tar.xz" if packed else study, SETS, METRICS)
    head, _, *rows = table.splitlines()
    assert head.count("Mean: delta_1") == 1
    assert [marked(row) for row in rows] == [
        ([], []),
        ([], []),
        ([3], []),
        ([], []),
        ([], [0, 1, 6, 7]),
        ([], []),
        ([], [3]),
        ([4, 5], []),
        ([], [2, 6, 8]),
        ([0, 1, 2, 4, 6, 7, 8], [5]),
    ]
    plain = rows[-1].replace("\u00a0", " ")
    assert plain.startswith("| yoto | 0.0468, 0.04676 | 0.9144, 0.0428, 0.0428 | **49.9** |")
    assert rows[4].replace("\u00a0", " ").startswith("| grid | 0.25, 0.1 | 0.7407, 0.1852, 0.0741 | *48.5* |")


def test_the_verdict_counts_all_sets_and_ranks_the_means(study):
    _, said = metrics_table.comparison(study, SETS, METRICS)
    assert said.splitlines() == [
        "yoto: best or level on 4 of 6 sets x metrics",
        "  mean delta_1: 71.1, place 1 of 10; the grid's best, 1 : 0.25 : 0.1, has 70.3",
        "  mean si_log: 16.57, place 1 of 10; the grid's best, 1 : 0.25 : 0.1, has 16.67",
        "  mean f_a: 60.2, place 1 of 10; the grid's best, 1 : 1 : 1, has 60.0",
        "grid: at most 2 of 6, by 1 : 1 : 0.1",
    ]


def test_seeds_that_are_missing_are_said(tmp_path):
    def one_seed(record):
        return None if record.rule.is_fixed and record.seed else record

    plans = [_stores.plan("yoto", "rule", [_stores.yoto()]), _stores.plan("grid", "set", _stores.ratio_grid(2, (1.0,)))]
    study = _stores.build(tmp_path, terms=TERMS, plans=plans, seeds=(0, 1), change=one_seed)
    table, _ = metrics_table.comparison(study, {"test": "one"}, ["accuracy"])
    rows = [line.replace("\u00a0", " ") for line in table.splitlines()[2:]]
    assert [row.split("|")[1].strip() for row in rows] == ["grid (1 of 2 seeds)", "yoto"]


@pytest.mark.parametrize(
    ("plans", "metric", "said"),
    [
        (None, "a_rel", r"have no 'test/a_rel'; they have .*'test/accuracy'"),
        ([_stores.plan("sweep-init", "sweep", [_stores.yoto()])], "accuracy", r"needs a grid or a rule with a result"),
    ],
)
def test_what_a_table_lacks_is_one_sentence(tmp_path, plans, metric, said):
    study = _stores.build(tmp_path, terms=TERMS, plans=plans, seeds=(0,), histories=False)
    with pytest.raises(ValueError, match=said):
        metrics_table.comparison(study, {"test": "one"}, [metric])


def test_dynamics_show_the_composite_loss_and_the_exponents_of_the_rule(study):
    panels = dynamics.draw(study, 0.1, 4).axes
    titles = [axes.get_title(loc="left") for axes in panels]
    auxiliary = [f"exponent of {term}" for term in TERMS[1:]]
    assert titles[:3] == ["composite loss", "loss: camera", "loss: invariance"]
    assert titles[3:] == ["loss: depth", *auxiliary, *(f"weight of {term}" for term in TERMS)]
    assert [len(axes.lines) for axes in panels] == [10, 10, 10, 10, 1, 1, 10, 10, 10]
    lines = {title: axes.lines[-1].get_ydata() for title, axes in zip(titles, panels, strict=True)}
    (own,) = [key for key, record in records.read_records(study).items() if record.rule == _stores.yoto()]
    history = next(history for history in records.read_histories(study) if history["key"] == own)
    assert lines["loss: depth"].tolist() == history["loss/depth"]
    parts = [lines[f"weight of {term}"][0] * lines[f"loss: {term}"][0] for term in TERMS]
    assert lines["composite loss"][0] == pytest.approx(sum(parts), rel=1e-6)


def test_starts_go_from_their_ring_to_their_dot(study):
    summary = Summary.read(study)
    figure = starts.draw(summary)
    plane = figure.axes[2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"init {init:g}" for init in STARTS]
    rings = [line for line in plane.lines if line.get_gid() == "start"]
    assert [line.get_xdata()[0] for line in rings] == pytest.approx([math.log(init) for init in STARTS], abs=0.15)
    dots = [line for line in plane.lines if line.get_gid() == "end"]
    ends = [outcome.records[0].ratios[1:] for outcome in summary.sweeps[0].outcomes]
    assert [math.exp(line.get_ydata()[0]) for line in dots] == pytest.approx([end[1] for end in ends])
    weights = [axes.lines[0].get_ydata()[-1] for axes in figure.axes[3:]]
    assert sum(weights) == pytest.approx(1)


def test_two_terms_have_no_plane(tmp_path):
    study = _stores.build(tmp_path, seeds=(0,))
    with pytest.raises(ValueError, match=r"needs two auxiliary terms or more; the task 'toy' has ce, consistency"):
        starts.draw(Summary.read(study))

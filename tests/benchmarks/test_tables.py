"""The tables on the results pages are those that the scripts print from the kept records."""

import re
from pathlib import Path

import _tables
import camvid_table
import executors_table
import metrics_table
import overhead_table
import pytest
import records
import rooms_table
import study_table

from trainonce.recipes import load
from trainonce.study import Summary, plans

RESULTS = Path(__file__).parents[2] / "docs" / "results"
DATA = RESULTS / "data"
SETS = {"test": "NYU", "7scenes": "7-Scenes", "tum": "TUM"}
MIXED = {"test": "rooms", "streets": "streets"}
METRICS = ("delta_1", "si_log", "f_a")

#: The beginnings of tables that hold figures, or whose measurements were not kept.
NOT_REBUILT = {
    "study": ["| cost against quality | response curve |", *["| cost against quality | weights |"] * 2],
    "segmentation": ["| precision | weights | ms/step |", "| product | CISS |"],
    "depth": ["| product | the paper | here |"],
    "overhead": ["| | small MLP, H200 |"],
    "scale": ["| study | command |", "| what happens | trials |"],
}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="a source distribution has no records")


def summary_of(name):
    with records.open_study(DATA / f"{name}.tar.xz") as folder:
        return Summary.read(folder)


def study():
    summaries = [summary_of(f"study/{name}") for name in ("distillation", "digits", "burgers")]
    anchored, *_ = study_table.tables(summary_of("study/burgers-initial"))
    return [
        study_table.overview(summaries),
        anchored,
        *(t for summary in summaries for t in study_table.tables(summary)),
    ]


def segmentation():
    constant, falling = (DATA / "segmentation" / f"{name}.tar.xz" for name in ("camvid", "camvid-poly"))
    comparison, chosen = study_table.tables(summary_of("segmentation/camvid"), symbols=True, without=["seconds"])
    camvid = [comparison, camvid_table.losses(constant), chosen, camvid_table.schedules(constant, falling)]
    return camvid + study_table.tables(summary_of("segmentation/streets-sgdw"), symbols=True, without=["seconds"])


def depth():
    nyu, rooms = DATA / "depth" / "nyu.tar.xz", DATA / "depth"
    found = [metrics_table.table(nyu, SETS, metrics) for metrics in (["delta_1"], ["si_log", "f_a"])]
    found += metrics_table.comparison(rooms / "rooms-mixed.tar.xz", MIXED, METRICS)[:1]
    return [*found, *(table(rooms) for table in rooms_table.TABLES)]


def overhead():
    rows = overhead_table.read(DATA / f"overhead-{name}.jsonl.xz" for name in ("h200", "cpu", "cpu-resnet"))
    times = [table for group in overhead_table.models(rows) for table in overhead_table.tables(group)]
    of_now = overhead_table.read([DATA / "overhead-rules-cpu.jsonl.xz"])
    now = [table for group in overhead_table.models(of_now) for table in overhead_table.tables(group)]
    return [overhead_table.overview(rows), *now, *times, *overhead_table.checks(rows)]


def scale():
    rows = executors_table.read(DATA / f"executors-{name}.jsonl.xz" for name in ("cpu", "h200"))
    cpu, gpu = executors_table.devices(rows)
    resnet = "benchmarks.resnet_task:resnet18"
    shown = [(cpu, "digits"), (gpu, "digits"), (gpu, resnet), (cpu, "distillation"), (cpu, "burgers")]
    return [executors_table.table(rows, device, task) for device, task in shown]


@pytest.mark.parametrize("rebuild", [study, segmentation, depth, overhead, scale])
def test_a_page_shows_exactly_the_tables_that_its_records_give(rebuild):
    page = (RESULTS / f"{rebuild.__name__}.md").read_text()
    shown = re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE)
    others = [table for table in shown if table.startswith(tuple(NOT_REBUILT[rebuild.__name__]))]
    assert len(others) == len(NOT_REBUILT[rebuild.__name__])
    assert [table.rstrip("\n") for table in shown if table not in others] == rebuild()


def test_the_page_on_depth_shows_the_verdicts_that_its_records_give():
    page = (RESULTS / "depth.md").read_text()
    _, nyu = metrics_table.comparison(DATA / "depth" / "nyu.tar.xz", SETS, METRICS)
    _, mixed = metrics_table.comparison(DATA / "depth" / "rooms-mixed.tar.xz", MIXED, METRICS)
    assert nyu[: nyu.index("one-shot(")] in page
    assert mixed in page


def test_fixed_weights_are_listed_by_ratio():
    rules = plans.parse("grid-13", load("ciss-paper")).rules
    assert [rule.ratios for rule in sorted(rules, key=metrics_table.order)] == sorted(rule.ratios for rule in rules)


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (
            "one-shot(init=0.0183156,decay=0.05,preset=softplus,lr=0.001)",
            "one-shot, ε 0.018, ρ 0.05, lr 0.001, softplus",  # noqa: RUF001
        ),
        ("one-shot(decay=200,init=1)", "one-shot, ε 1, ρ 200"),  # noqa: RUF001
        ("replay", "replay"),
        ("grid(0.01,0.1)", "grid(0.01,0.1)"),
        ("random(trials=20)", "random(trials=20)"),
    ],
)
def test_plans_of_learned_weights_are_named_with_the_symbols_of_the_paper(plan, name):
    assert _tables.short_name(plan) == name


def test_all_checks_of_the_overhead_passed():
    results = [row["result"] for row in overhead_table.read([DATA / "overhead-h200.jsonl.xz"]) if "check" in row]
    assert len(results) == 17
    assert set(results) == {"PASS"}

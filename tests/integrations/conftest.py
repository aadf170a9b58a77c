"""What the tests of the adapters share: the table of adapters and checks, written from what was run."""

import importlib
from pathlib import Path

import pytest

RESULTS = {}
WORDS = {"passed": "yes", "failed": "**no**"}


def pytest_addoption(parser):
    parser.addoption("--table", metavar="FILE", help="write the table of adapters and checks there")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    given = getattr(getattr(item, "callspec", None), "params", {})
    if getattr(item, "originalname", "") == "test_adapter" and (report.when == "call" or report.outcome != "passed"):
        reason = report.longrepr[2].removeprefix("Skipped: ") if report.skipped else ""
        RESULTS[given["module"], given["check"].__name__] = WORDS.get(report.outcome, reason)


def pytest_sessionfinish(session):
    path = session.config.getoption("--table")
    if path and RESULTS:
        from _tester import CHECKS
        from test_adapters import MODULES

        adapters = [importlib.import_module(module).ADAPTER for module in MODULES]
        lines = ["| | " + " | ".join(adapter.name for adapter in adapters) + " |", "|---" * (len(adapters) + 1) + "|"]
        for check in CHECKS:
            cells = [RESULTS.get((module, check.__name__), "not run") for module in MODULES]
            lines.append(f"| {check.__name__.replace('_', ' ')} | " + " | ".join(cells) + " |")
        Path(path).write_text("\n".join(lines) + "\n")

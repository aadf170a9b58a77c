"""The pages that reproduce the paper's systems: every command is one, as written there and at the tiny size."""

import re
import shlex
from pathlib import Path

import pytest

from trainonce.cli.arguments import build_parser
from trainonce.cli.request import read_request
from trainonce.recipes.depth.settings import Settings as Depth
from trainonce.recipes.segmentation.settings import Settings as Segmentation

ROOT = Path(__file__).parents[2]
PAGES = {
    "reproduce_unidepth": (Depth, [16, 16, 11, 11, 2, 1]),
    "reproduce_ciss": (Segmentation, [14, 14, 14, 2, 2, 3, 1]),
}


def commands(page):
    """The lines of a page's shell blocks, continued ones joined, and what is added to make a training tiny."""
    text = (ROOT / "docs" / "how-to" / "recipes" / f"{page}.md").read_text()
    joined = "\n".join(re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    tiny = " ".join(re.findall(r'^TINY="(?:\$TINY )?(.*)"$', joined, re.MULTILINE))
    return joined.splitlines(), tiny


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("tiny", [False, True])
def test_what_is_to_be_trained_can_be(page, tiny):
    lines, more = commands(page)
    found = [line.partition("trainonce ")[2] for line in lines if re.search(r"trainonce (compare|run) ", line)]
    settings, counts = PAGES[page]
    assert len(found) == len(counts)
    for line, count in zip(found, counts, strict=True):
        asked = build_parser().parse_args(shlex.split(f"{line} {more}" if tiny else line))
        request = read_request(asked, getattr(asked, "plans", None) or [asked.plan], [0])
        assert sum(len(plan.rules) for plan in request.plans) == count
        settings(**request.task.settings)


@pytest.mark.parametrize("page", PAGES)
def test_every_other_command_is_one(page):
    found = [shlex.split(line)[1:] for line in commands(page)[0] if line.startswith("trainonce ")]
    for words in found:
        build_parser().parse_args(words)
    assert {"compare", "data", "summary", "report", "evaluate"} <= {words[0] for words in found}


@pytest.mark.parametrize("page", PAGES)
def test_scripts_are_there(page):
    scripts = [line.split()[1] for line in commands(page)[0] if line.startswith("python ")]
    assert scripts
    assert all((ROOT / script).is_file() for script in scripts)

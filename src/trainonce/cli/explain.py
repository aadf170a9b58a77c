"""``trainonce explain``: what a health warning means and how to fix it, printed in the terminal.

The text is ``health/topics.md``. It ships with the package, and the documentation shows the same file.
"""

from __future__ import annotations

import functools
import importlib.resources
import importlib.util
import re
import shutil
import sys
import textwrap

from trainonce import health
from trainonce.text import did_you_mean

WIDTH = 100  # columns at most: longer lines are hard to read


@functools.cache
def sections() -> dict[str, str]:
    """The Markdown text of every topic, by its name.

    >>> sections()["not-attached"].splitlines()[0]
    '**Seen.** The criterion was called 100 times in training and is attached to no optimizer.'
    """
    page = importlib.resources.files("trainonce.health").joinpath("topics.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", page, flags=re.MULTILINE)
    return {heading: body.strip() for heading, _, body in (part.partition("\n") for part in parts)}


def find(name: str) -> str | None:
    """The topic that a text names, by its own name or by the warning's class; None if there is none.

    >>> find("not-attached"), find("NotAttached"), find("trainonce.health.NotAttached"), find("nothing")
    ('not-attached', 'not-attached', 'not-attached', None)
    """
    return next((topic for topic in _spellings(name) if topic in sections()), None)


def unknown_topic(name: str) -> str:
    """One sentence for a name that is no topic, with the likely one."""
    return f"There is no topic {name!r}.{did_you_mean(_spellings(name)[-1], sections())} 'trainonce explain' lists all."


def overview() -> str:
    """Every topic with what was seen, one entry each."""
    width = 2 + max(map(len, sections()))
    lines = [_fill(f"{topic:<{width}}{_first_sentence(text)}", " " * width) for topic, text in sections().items()]
    return "\n".join([*lines, "", "'trainonce explain TOPIC' says why, and how to fix it."])


def show(topic: str) -> None:
    """Print a topic: formatted by rich where that is installed and someone is reading, as plain text elsewhere."""
    text = _page(topic)
    if not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        print(plain_text(text))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(text), width=min(console.width, WIDTH))


def plain_text(text: str) -> str:
    """Markdown as plain text: paragraphs wrapped, code blocks indented and otherwise as they are.

    >>> print(plain_text("**Fix.** Call `attach`.\\n\\n```python\\nattach(a,\\n       b)\\n```"))
    Fix. Call `attach`.
    <BLANKLINE>
        attach(a,
               b)
    """
    blocks: list[str] = []
    for index, part in enumerate(re.split(r"^```\w*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)):
        if index % 2:
            blocks.append(textwrap.indent(part.rstrip(), "    "))
        else:
            blocks += [_fill(_without_marks(paragraph)) for paragraph in part.split("\n\n") if paragraph.strip()]
    return "\n\n".join(blocks)


def _page(topic: str) -> str:
    name = next(found.__name__ for found in health.HealthWarning.__subclasses__() if found.topic() == topic)
    silence = f'```python\nwarnings.filterwarnings("ignore", category=trainonce.health.{name})\n```'
    return "\n\n".join([f"## {topic}", sections()[topic], "**Silence.** Once you know that it does no harm:", silence])


def _first_sentence(text: str) -> str:
    """The first sentence of a section."""
    first = text.partition("\n\n")[0].removeprefix("**Seen.** ")
    return re.split(r"(?<=\.)\s", first)[0]


def _spellings(name: str) -> list[str]:
    """A name as given, and with the class's capitals written as a topic."""
    last = name.strip().rpartition(".")[2]
    return [re.sub(r"[\s_]+", "-", spelling.lower()) for spelling in (last, health.topic_of(last))]


def _without_marks(paragraph: str) -> str:
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
    return re.sub(r"\*\*(.+?)\*\*", r"\1", text).removeprefix("## ")


def _fill(text: str, indent: str = "") -> str:
    width = min(shutil.get_terminal_size().columns, WIDTH)
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)

"""How a plan is written: a name, and settings in brackets or after a colon; read, and written in one way."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from trainonce.study.rule_classes import place_name
from trainonce.text import exact, is_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The name of a rule of one's own: file.py:Name or package.module:Name.
OWN = r"[^\s():,=]+\.py:[A-Za-z_]\w*|[A-Za-z_]\w*(?:\.\w+)+:[A-Za-z_]\w*"


def is_own(name: str) -> bool:
    return re.fullmatch(OWN, name) is not None


def own_name(name: str) -> str:
    """The name of a rule of one's own as studies know it, without folders."""
    place, _, rule = name.rpartition(":")
    return f"{place_name(place)}:{rule}"


def name_and_inside(text: str) -> tuple[str, str]:
    """The name of a plan and its settings, in brackets or after a colon."""
    found = re.fullmatch(rf"\s*({OWN}|[\w-]+)\s*(?:\((.*)\)|:(.*))?\s*", text, re.DOTALL)
    if found is None:
        raise ValueError(
            "A plan is a name with settings in brackets or after a colon, such as yoto(init=1) or yoto:init=1, or a "
            f"rule of your own, such as my_rules.py:GradNorm(alpha=1.5); got {text!r}."
        )
    return found[1], found[2] or found[3] or ""


def read(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The name of a plan, the settings without a name and those with one."""
    name, inside = name_and_inside(text)
    values: list[Any] = []
    settings: dict[str, Any] = {}
    for part in split(inside):
        key, equals, value = part.partition("=")
        if equals and key.strip() in settings:
            raise ValueError(f"The plan {name!r} gets the setting {key.strip()!r} twice, in {text!r}. Give it once.")
        if equals:
            settings[key.strip()] = _value(value)
        else:
            values.append(_value(part))
    return name, values, settings


def write(name: str, values: Sequence[Any], settings: Mapping[str, Any]) -> str:
    shown = [show(v) for v in values] + [f"{k}={show(v)}" for k, v in settings.items()]
    name = own_name(name) if is_own(name) else name
    return f"{name}({','.join(shown)})" if shown else name


def split(text: str) -> list[str]:
    """Split at the commas that are outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _value(text: str) -> Any:
    """A setting: a number, several separated by /, or a word."""
    if is_own(text.strip()):
        return text.strip()
    if "/" in text:
        return tuple(_value(part) for part in text.split("/"))
    try:
        return float(text) if text.strip() in ("inf", "-inf") else ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def show(value: Any) -> str:
    return "/".join(map(show, value)) if isinstance(value, tuple) else exact(value) if is_number(value) else str(value)

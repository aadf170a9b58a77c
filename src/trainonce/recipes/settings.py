"""The settings of a recipe as a dataclass, each checked by its rule, and as the parameters of a task."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from typing import TYPE_CHECKING, Any, TypeVar

from trainonce.study import user_errors
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

S = TypeVar("S")


#: The upper end of a range that includes 1.
AT_MOST_1 = math.nextafter(1, 2)


def check(
    settings: Any, choices: Mapping[str, Sequence[str]], ranges: Mapping[str, tuple[float, float]], sizes: Sequence[str]
) -> None:
    """Check every setting against its rule, and raise an error that names the setting.

    :param choices: The values that a text may have.
    :param ranges: The lower bound of a number, and the upper bound that it must stay below; by default 0 and none.
    :param sizes: Settings that are a height and a width; one whose default is empty may be left out.
    """
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        if name in sizes:
            _check_size(settings, name, value, bool(field.default))
        elif name in choices and value not in choices[name]:
            raise ValueError(f"The setting {name} is one of {quoted(choices[name])}; got {value!r}.")
        else:
            _check(name, field.default, value, ranges)


def _check_size(settings: Any, name: str, value: Any, needed: bool) -> None:
    value = value or ()
    listed = isinstance(value, (list, tuple)) and all(type(n) is int and n > 0 for n in value)
    if not listed or len(value) not in ((2,) if needed else (0, 2)):
        raise ValueError(f"The setting {name} is a height and a width, as in {name}=512,1024; got {value}.")
    object.__setattr__(settings, name, tuple(value))


def _check(name: str, default: Any, value: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Check one setting by the type of its default."""
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"The setting {name} is True or False; got {value!r}.")
    elif isinstance(default, str):
        if not isinstance(value, str):
            raise ValueError(f"The setting {name} is a text; got {value!r}.")
    elif isinstance(default, (int, float)):
        low, high = ranges.get(name, (0, math.inf))
        kinds, kind = ((int,), "whole number") if isinstance(default, int) else ((int, float), "number")
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value < high:
            upper = "" if high == math.inf else f" and {'at most' if high == AT_MOST_1 else 'below'} {high:g}"
            raise ValueError(f"The setting {name} is a {kind} of at least {low}{upper}; got {value!r}.")


def with_settings(defaults: S) -> Callable[[Callable[[Any, S], Any]], Callable[..., Any]]:
    """Turn a function of a trial and settings into one of a trial and a keyword-only parameter for each setting.

    In place of the trial there may be anything else.
    """

    def decorate(function: Callable[[Any, S], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(trial: Any, **given: Any) -> Any:
            with user_errors():
                settings = dataclasses.replace(defaults, **given)  # type: ignore[type-var]
            return function(trial, settings)

        fields = dataclasses.fields(defaults)  # type: ignore[arg-type]
        each = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(defaults, f.name)) for f in fields
        ]
        first = inspect.Parameter("trial", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__doc__ = f"{function.__doc__}\n\n{inspect.getdoc(type(defaults))}"
        run.__signature__ = inspect.Signature([first, *each])  # type: ignore[attr-defined]
        return run

    return decorate

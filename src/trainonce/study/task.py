"""A task: a training function, with what a comparison must know about it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import hashlib
import inspect
import json
import math
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal

from trainonce.study import torchrun
from trainonce.terms import check_names
from trainonce.text import did_you_mean, is_number, quoted

if TYPE_CHECKING:
    from trainonce.study.trial import Trial

Direction = Literal["maximize", "minimize"]
TrainFunction = Callable[..., Mapping[str, float] | None]


class Splits:
    """The names of the metric on the two splits, for whatever knows the metric and the splits."""

    metric: str
    select: str
    report: str

    @property
    def select_key(self) -> str:
        """The name under which the function returns the metric that selects."""
        return f"{self.select}/{self.metric}"

    @property
    def report_key(self) -> str:
        """The name under which the function returns the metric that is reported."""
        return f"{self.report}/{self.metric}"


@dataclasses.dataclass(frozen=True)
class Task(Splits):
    """Something that can be trained under given weights and returns metrics. Made by :func:`task`.

    ``settings`` are the keyword-only parameters of the function; :meth:`using` changes them.
    """

    function: TrainFunction
    name: str
    terms: tuple[str, ...]
    metric: str
    direction: Direction
    select: str
    report: str
    unit: str = ""
    margin: float | None = None
    one_shot: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float | None = None
    preload: tuple[str, ...] = ()
    incidental: tuple[str, ...] = ()
    version: int | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, trial: Trial) -> Mapping[str, float] | None:
        return self.function(trial, **copy.deepcopy(dict(self.settings)))

    @property
    def about(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def steps(self) -> int | None:
        """The length of a training, where the function has a setting of that name."""
        steps = self.settings.get("steps")
        return steps if isinstance(steps, int) else None

    def using(self, **settings: Any) -> Task:
        """The task with some settings changed.

        >>> from trainonce.recipes.digits import digits
        >>> digits.using(steps=10).settings["steps"]
        10
        """
        for key, value in settings.items():
            if key not in self.settings:
                known = ", ".join(self.settings) or "none"
                raise ValueError(
                    f"The task {self.name!r} has no setting {key!r}; it has: {known}.{did_you_mean(key, self.settings)}"
                )
            if key == "steps" and not (isinstance(value, int) and value >= 1):
                raise ValueError(f"The setting steps of the task {self.name!r} must be at least 1; got {value!r}.")
            if isinstance(self.settings[key], float) and isinstance(value, int):
                settings[key] = float(value)  # lr=1 and lr=1.0 are the same training
        return dataclasses.replace(self, settings={**self.settings, **settings})

    @functools.cached_property
    def identity(self) -> str:
        """What the results depend on: the source of the task's file and the settings. Comments do not count.

        A task with a version says itself when its results change; then its source does not count. Of a task in a
        notebook only its own function counts, not what it calls in other cells.
        """
        metric = [self.metric, self.direction, self.select, self.report]
        code = [self._source(), self._closure()] if self.version is None else [self.version]
        content: list[Any] = [self.name, self.terms, metric, self._settings_as_json(), *code]
        if torchrun.world_size() > 1:  # each process has a batch of its own, so their number is a setting, too
            content.append(torchrun.world_size())
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def _settings_as_json(self) -> dict[str, Any]:
        """The settings that matter, as JSON; what JSON cannot hold is written as Python prints it."""
        plain = {}
        for key, value in self.settings.items():
            if key in self.incidental:
                continue
            plain[key] = json.loads(json.dumps(value, default=repr))
            if " at 0x" in str(plain[key]):
                raise ValueError(
                    f"The setting {key!r} of the task {self.name!r} has no text that stays the same: {value!r}. Use "
                    "a number, a string or a list of them."
                )
        return plain

    def _closure(self) -> list[str]:
        """What the function was made with, where that has a text that stays."""
        cells = inspect.unwrap(self.function).__closure__ or ()
        return [text for cell in cells if " at 0x" not in (text := repr(cell.cell_contents))]

    def _source(self) -> str:
        function = inspect.unwrap(self.function)
        path = inspect.getsourcefile(function)
        try:
            if path is not None and path.endswith(".py") and os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    return normalise_source(file.read(), function.__name__)
            return normalise_source(textwrap.dedent(inspect.getsource(function)), function.__name__)  # a notebook's
        except (OSError, TypeError, SyntaxError):
            return repr(_code(function.__code__))

    def info(self) -> dict[str, Any]:
        """What a report must know, as JSON."""
        return {
            "name": self.name,
            "terms": list(self.terms),
            "metric": self.metric,
            "direction": self.direction,
            "select": self.select,
            "report": self.report,
            "unit": self.unit,
            "margin": self.margin,
            "about": self.about,
            "settings": self._settings_as_json(),
            "identity": self.identity,
        }


def task(
    *,
    terms: Sequence[str],
    metric: str,
    direction: Direction,
    select: str = "validation",
    report: str = "test",
    unit: str = "",
    margin: float | None = None,
    one_shot: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    preload: Sequence[str] = (),
    incidental: Sequence[str] = (),
    version: int | None = None,
    name: str | None = None,
) -> Callable[[TrainFunction], Task]:
    """Turn a training function into a task.

    The function receives a :class:`~trainonce.study.Trial` and its settings as keyword-only parameters with defaults.
    It takes its criterion from ``trial.criterion()``, calls ``trial.attach(optimizer)``, trains, and returns its
    metrics by split, such as ``{"validation/accuracy": 91.2, "test/accuracy": 90.8}``.

    :param terms: The names of the losses, base first.
    :param metric: The metric that counts, such as ``"accuracy"``.
    :param direction: ``"maximize"`` or ``"minimize"``.
    :param select: The split whose metric chooses among weights and prunes.
    :param report: The split whose metric is the result. It must not be the one that selects.
    :param unit: What to print behind the metric, such as ``"%"``.
    :param margin: How much worse the metric may be and still be acceptable (non-inferiority). By default 2 % of the
        best grid point's mean.
    :param one_shot: Settings of the one-shot plan that suit this task: ``init``, ``decay``, ``preset``, ``lr``.
    :param seconds: About how long one training takes on one CPU core, for the list of recipes.
    :param preload: Modules that each trial will import; they are loaded once, before the first.
    :param incidental: Settings that the results do not depend on, such as where the data is. A study continues when
        they change, and its records do not contain them.
    :param version: A number that you raise when a change of the code changes the results, so that earlier trials are
        not mixed with later ones. By default every change of the file counts.
    :param name: The task's name; by default the function's.

    >>> @task(terms=["fit", "small"], metric="error", direction="minimize")
    ... def line(trial, *, steps=100):
    ...     \"\"\"A straight line.\"\"\"
    >>> line.name, line.select_key, line.report_key, line.settings["steps"]
    ('line', 'validation/error', 'test/error', 100)
    """
    checked = check_names(terms, "task")
    if direction not in ("maximize", "minimize"):
        raise ValueError(f"direction must be 'maximize' or 'minimize'; got {direction!r}.")
    if select == report:
        raise ValueError(
            f"select and report must be different splits: weights chosen on the split they are reported on look better "
            f"than they are. Got {select!r} for both."
        )
    for label, text in (("metric", metric), ("select", select), ("report", report)):
        if not text or "/" in text:
            raise ValueError(f"{label} must be a name without '/'; got {text!r}.")
    if margin is not None and not (is_number(margin) and 0 < margin < math.inf):
        raise ValueError(f"margin is an amount of the metric and must be positive; got {margin!r}.")

    def decorate(function: TrainFunction) -> Task:
        settings = _settings(function)
        if unknown := [key for key in incidental if key not in settings]:
            known = ", ".join(settings) or "none"
            raise ValueError(f"incidental names settings of the function; {quoted(unknown)} is none. It has: {known}.")
        return Task(
            function,
            name or function.__name__,
            checked,
            metric,
            direction,
            select,
            report,
            unit,
            margin,
            dict(one_shot or {}),
            seconds,
            tuple(preload),
            tuple(incidental),
            version,
            settings,
        )

    return decorate


def _settings(function: TrainFunction) -> dict[str, Any]:
    found = {}
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        raise TypeError(f"A task function takes the trial as its first parameter; {function.__name__} does not.")
    for parameter in parameters[1:]:
        if parameter.kind is not Parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise TypeError(
                f"Besides the trial a task function takes settings: keyword-only parameters with a default, as in "
                f"def {function.__name__}(trial, *, steps=100). {parameter.name!r} is not one."
            )
        found[parameter.name] = parameter.default
    return found


def _code(code: Any) -> Any:
    """What a function does, where its source is not to be had."""
    constants = [
        _code(c) if inspect.iscode(c) else sorted(map(repr, c)) if isinstance(c, frozenset) else repr(c)
        for c in code.co_consts
    ]
    return code.co_code, code.co_names, constants


def normalise_source(source: str, function: str) -> str:
    """The source as far as it computes: no comments, no layout, no docstrings, no decorator of the task itself."""

    def dump(node: Any) -> Any:
        if isinstance(node, list):
            return [dump(child) for child in node if not _is_docstring(child)]
        if not isinstance(node, ast.AST):
            return repr(node)
        constant = isinstance(node, ast.Constant)
        fields = {
            name: value for name, value in ast.iter_fields(node) if constant or (value is not None and value != [])
        }
        if isinstance(node, ast.FunctionDef) and node.name == function:
            fields.pop("decorator_list", None)
        return [type(node).__name__, {name: dump(value) for name, value in fields.items() if name != "kind"}]

    return json.dumps(dump(ast.parse(source)))


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

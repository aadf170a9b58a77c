"""A task: a training function, with what a comparison must know about it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainonce.study import identity
from trainonce.text import check_line, did_you_mean, is_number, quoted

if TYPE_CHECKING:
    from trainonce.study.plans import Plan
    from trainonce.study.trial import Trial

Direction = Literal["maximize", "minimize"]
TrainFunction = Callable[..., Mapping[str, float] | None]
Evaluate = Callable[..., Mapping[str, float]]
CheckData = Callable[..., Mapping[str, str]]
#: Writes made-up data of a size (height, width) into a folder.
MakeData = Callable[[Path, tuple[int, int] | None], str | None]
Notes = Callable[["Task", "Sequence[Plan]", Sequence[int]], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings of a task, and of the paper's rule for it, that belong together under one name.

    :param about: What they are, in a few words.
    """

    about: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    yoto: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Splits:
    """The metric and the two splits, for whatever knows them."""

    metric: str
    direction: Direction
    select: str
    report: str

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return 1 if self.direction == "maximize" else -1

    def score(self, metrics: Mapping[str, float]) -> float:
        """Return how good metrics are by the split that selects: more is better, minus infinity where it diverged."""
        value = metrics.get(self.select_key, math.nan)
        return self.sign * value if math.isfinite(value) else -math.inf

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
    yoto: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float | None = None
    preload: tuple[str, ...] = ()
    incidental: tuple[str, ...] = ()
    version: int | None = None
    ignore_files: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    made: float = dataclasses.field(default_factory=time.time, compare=False)
    ranks: int = 1
    own: Mapping[str, float] = dataclasses.field(default_factory=dict)
    presets: Mapping[str, Preset] = dataclasses.field(default_factory=dict)
    notes: Notes | None = None
    evaluate: Evaluate | None = None
    check_data: CheckData | None = None
    make_data: Mapping[str, MakeData] = dataclasses.field(default_factory=dict)

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

    @property
    def epochs(self) -> int | None:
        """The length of a training in epochs, where the function has a setting of that name."""
        epochs = self.settings.get("epochs")
        return epochs if isinstance(epochs, int) else None

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

    def preset(self, name: str) -> Task:
        """The task with the settings of one of its presets; those changed afterwards go before it."""
        if name not in self.presets:
            known = quoted(self.presets) or "none"
            raise ValueError(
                f"The task {self.name!r} has no preset {name!r}; it has: {known}.{did_you_mean(name, self.presets)}"
            )
        chosen = self.presets[name]
        return dataclasses.replace(self.using(**chosen.settings), yoto={**self.yoto, **chosen.yoto})

    def over(self, ranks: int) -> Task:
        """The task with trainings over so many processes each, on one machine or several: see the executor ``ray``."""
        if not (isinstance(ranks, int) and ranks >= 1):
            raise ValueError(f"ranks is how many processes train together, at least 1; got {ranks!r}.")
        return dataclasses.replace(self, ranks=ranks)

    def files_edited_since(self) -> list[str]:
        """Return the files of the task that were edited after it was made: this process has them as they were."""
        path = identity.file_of(self.function)
        files = {} if path is None or self.version is not None else identity.files_of(path, (), self.ignore_files)
        return [name for name, file in files.items() if file.stat().st_mtime > self.made]

    @functools.cached_property
    def parts(self) -> Mapping[str, Any]:
        """What the results depend on, as JSON: see :mod:`trainonce.study.identity`."""
        return identity.parts_of(self)

    @functools.cached_property
    def identity(self) -> str:
        """A hash of what the results depend on: terms, metric, settings, and the task's file with those it imports.

        Comments and docstrings do not count, nor does the block under ``if __name__ == "__main__":``. A task with a
        version says itself when its results change; then its code does not count. A task in a notebook without one is
        a new task each time its cell is run.
        """
        return identity.digest(self.parts)

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
            "own": dict(self.own),
            "about": self.about,
            "settings": self.parts["settings"],
            "identity": self.identity,
            "files": self.parts["files"],
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
    yoto: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    preload: Sequence[str] = (),
    incidental: Sequence[str] = (),
    version: int | None = None,
    ignore_files: Sequence[str] = (),
    own: Mapping[str, float] | None = None,
    presets: Mapping[str, Preset] | None = None,
    notes: Notes | None = None,
    name: str | None = None,
    evaluate: Evaluate | None = None,
    check_data: CheckData | None = None,
    make_data: Mapping[str, MakeData] | None = None,
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
    :param yoto: Settings of the paper's rule that suit this task, such as ``{"init": 0.1, "decay": 20}``: see
        :class:`trainonce.CompositeLoss`.
    :param seconds: About how long one training takes on one CPU core, for the list of recipes and the cost of a study.
    :param preload: Modules that each trial will import; they are loaded once, before the first.
    :param incidental: Settings that the results do not depend on, such as where the data is. A study continues when
        they change, and its records do not contain them.
    :param version: A number that you raise when a change of the code changes the results, so that earlier trials are
        not mixed with later ones. By default every change counts of the task's file and of those beside it, in its
        folder or package, that it imports.
    :param ignore_files: Which of those do not count, such as ``["plots.py", "pictures/*"]``.
    :param own: The weights that you train with today, such as ``{"ce": 1.0, "consistency": 0.1}``: the plan ``own``.
    :param presets: Settings that belong together, by the name that ``--preset`` chooses them by: see
        :class:`trainonce.study.Preset`.
    :param notes: A function of the task, the plans and the seeds that returns sentences to show before anything is
        trained, such as what a setting will cost.
    :param name: The task's name; by default the function's.
    :param evaluate: What ``trainonce evaluate`` calls: a function of a :class:`~trainonce.study.KeptTrial` and the
        settings that loads the trial's ``network.pt``, which training has written to ``trial.dir``, and returns metrics
        by the names that training gives them.
    :param check_data: What ``trainonce data check`` calls: a function of ``progress(done, total, what)`` and the
        settings that reads the data, raises ``ValueError`` for what is wrong, and returns a line of text for each set.
    :param make_data: What ``trainonce data make`` calls: for each layout of the data that is read a function of a
        folder and a size (height, width), or None, that writes made-up data there and may return the options with which
        it can be checked. The first is the default.

    >>> @task(terms=["fit", "small"], metric="error", direction="minimize")
    ... def line(trial, *, steps=100):
    ...     \"\"\"A straight line.\"\"\"
    >>> line.name, line.select_key, line.report_key, line.settings["steps"]
    ('line', 'validation/error', 'test/error', 100)
    """
    from trainonce.terms import check_names

    checked = check_names(terms, "task")
    if direction not in ("maximize", "minimize"):
        raise ValueError(f"direction must be 'maximize' or 'minimize'; got {direction!r}.")
    if select == report:
        raise ValueError(
            f"select and report must be different splits: weights chosen on the split they are reported on look better "
            f"than they are. Got {select!r} for both."
        )
    for label, text in (("metric", metric), ("select", select), ("report", report)):
        if not text.strip() or "/" in text:
            raise ValueError(f"{label} must be a name without '/'; got {text!r}.")
    for label, text in {"metric": metric, "select": select, "report": report, "unit": unit, "name": name or ""}.items():
        check_line(label, text)
    if own is not None and (
        set(own) != set(checked) or not all(is_number(w) and 0 <= w < math.inf for w in own.values())
    ):
        raise ValueError(f"own is a weight of at least 0 for each of the terms {quoted(checked)}; got {own!r}.")
    if margin is not None and not (is_number(margin) and 0 < margin < math.inf):
        raise ValueError(f"margin is an amount of the metric and must be positive; got {margin!r}.")

    def decorate(function: TrainFunction) -> Task:
        if not inspect.isroutine(inspect.unwrap(function)):
            raise TypeError(f"@task decorates a function; got {_name_of(function)}. Put it inside a function.")
        settings = settings_of(function)
        if unknown := [key for key in incidental if key not in settings]:
            known = ", ".join(settings) or "none"
            raise ValueError(f"incidental names settings of the function; {quoted(unknown)} is none. It has: {known}.")
        made = Task(
            function,
            name or function.__name__,
            checked,
            metric,
            direction,
            select,
            report,
            unit,
            margin,
            dict(yoto or {}),
            seconds,
            tuple(preload),
            tuple(incidental),
            version,
            tuple(ignore_files),
            settings,
            own=dict(own or {}),
            presets=dict(presets or {}),
            notes=notes,
            evaluate=evaluate,
            check_data=check_data,
            make_data=dict(make_data or {}),
        )
        for preset in made.presets:
            made.preset(preset)  # raises where it has a setting that the function lacks
        return made

    return decorate


def settings_of(function: TrainFunction) -> dict[str, Any]:
    """The settings that a task's function declares, with their defaults."""
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


def _name_of(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"

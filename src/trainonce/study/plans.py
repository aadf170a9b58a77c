"""Plans: the ways to choose weights that a study compares, by name.

A plan is written as it is on the command line: a name, and settings in brackets, such as ``one-shot(init=1)``,
``grid(0.1,1,10)`` or ``tpe(trials=30)``, or after a colon, which no shell minds: ``grid:0.1,1,10``. :data:`PLANS` lists
them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import random
import re
from collections import Counter
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trainonce.study.cost import smaller
from trainonce.study.search import RUNGS, Search
from trainonce.study.weightings import Final, Fixed, Halved, Learned, Replay, Weighting, grid
from trainonce.study.weightings.peer_names import LEFT_OUT, PEERS
from trainonce.text import did_you_mean, exact, is_number, names_error, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trainonce.study.task import Task

Kind = Literal["learned", "fixed", "set", "search", "peer", "control", "sweep"]

#: How the trials of each kind of plan are read. Reports give every kind a colour of its own.
KINDS: dict[Kind, str] = {
    "learned": "Learned weights",
    "fixed": "One fixed choice",
    "set": "Several fixed choices: the one that does best on validation counts",
    "search": "Searches: what each seed's search has chosen counts",
    "peer": "Other weighting methods (TorchJD)",
    "control": "Controls: is it the weights, or that they follow this run's losses?",
    "sweep": "Sweeps: every value is shown, none is chosen",
}
SINGLE: tuple[Kind, ...] = ("learned", "fixed", "peer")  # they train once
SEARCHES: tuple[Kind, ...] = ("set", "search")  # they train several choices of weights and keep one


Axes = tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A way to choose weights, worked out for one task.

    ``kind`` says how its trials are read; see :data:`KINDS`. ``axes`` are the ratios of each auxiliary term of which
    a grid has every combination.
    """

    name: str
    kind: Kind
    weightings: tuple[Weighting, ...] = ()
    search: Search | None = None
    axes: Axes | None = None


class Grid(NamedTuple):
    """The ratios of each auxiliary term, of which a plan tries every combination."""

    axes: Axes


class PlanType(NamedTuple):
    """A kind of plan: how its trials are read, what makes its weightings for a task, and what it is, in a line."""

    kind: Kind
    make: Callable[..., list[Weighting] | Search | Grid]
    about: str


def parse(text: str, task: Task) -> Plan:
    """The plan that a text names, for a task.

    >>> from trainonce.recipes.digits import digits
    >>> plan = parse("grid(0.1, 1)", digits)
    >>> [weighting.label for weighting in plan.weightings]
    ['1 : 0.1 : 0.1', '1 : 0.1 : 1', '1 : 1 : 0.1', '1 : 1 : 1']
    """
    return build(*_read(text), task)


def name_of(text: str) -> str:
    """The name by which a study knows the plan that a text names, however it is written.

    >>> name_of("grid:0.10,1.0"), name_of("uniform")
    ('grid(0.1,1)', 'uniform')
    """
    return _title(*_read(text))


def _read(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The name of a plan, the settings without a name and those with one."""
    name, inside = _parts(text)
    values: list[Any] = []
    settings: dict[str, Any] = {}
    for part in split(inside):
        key, equals, value = part.rpartition("=")
        if key.strip() in settings:
            raise ValueError(f"The plan {name!r} gets the setting {key.strip()!r} twice, in {text!r}. Give it once.")
        if equals:
            settings[key.strip()] = _value(value)
        else:
            values.append(_value(part))
    return name, values, settings


def _title(name: str, values: Sequence[Any], settings: Mapping[str, Any]) -> str:
    shown = [_format(v) for v in values] + [f"{k}={_format(v)}" for k, v in settings.items()]
    return f"{name}({','.join(shown)})" if shown else name


def _parts(text: str) -> tuple[str, str]:
    """The name of a plan and its settings, in brackets or after a colon."""
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\)|:(.*))?\s*", text, re.DOTALL)
    if found is None:
        raise ValueError(
            "A plan is a name with settings in brackets or after a colon, such as one-shot(init=1) or one-shot:init=1; "
            f"got {text!r}."
        )
    return found[1], found[2] or found[3] or ""


def check_names(texts: Iterable[str]) -> None:
    """Raise if there is no plan of one of the names, which needs no task."""
    for text in texts:
        _check_name(_parts(text)[0])


def _check_name(name: str) -> None:
    reason = next((why for scalarizer, why in LEFT_OUT.items() if scalarizer.lower() == name.lower()), None)
    if name not in PLANS and reason is not None:
        raise ValueError(f"TorchJD's {name} is not among the plans: {reason}.")
    if name not in PLANS:
        raise ValueError(f"There is no plan {name!r}; there are: {', '.join(PLANS)}.{did_you_mean(name, PLANS)}")


def build(name: str, values: Sequence[Any], settings: Mapping[str, Any], task: Task) -> Plan:
    """The plan with the given settings; raises one sentence about what does not fit."""
    _check_name(name)
    kind, make, _ = PLANS[name]
    _check_positional(name, values)
    _check_named(name, settings)
    title = _title(name, values, settings)
    try:
        made = make(task, *values, **settings)
        if isinstance(made, Search):
            made.check()
            return Plan(title, kind, search=made)
        if isinstance(made, Grid):
            return Plan(title, kind, tuple(grid(made.axes)), axes=made.axes)
        for weighting in made:
            weighting.check(task)
    except (TypeError, ArithmeticError) as error:
        text = re.sub(r"^_\w+\(\) |^\S*make\(\) ", "it ", str(error))
        raise ValueError(f"The plan {title!r} cannot be made: {text}. It is written {usage(name)}.") from None
    unique = {repr(weighting): weighting for weighting in made}
    return Plan(title, kind, tuple(unique.values()))


def check_different(plans: Sequence[Plan]) -> None:
    """Raise if a plan is there twice."""
    repeated = next((name for name, count in Counter(plan.name for plan in plans).items() if count > 1), None)
    if repeated is not None:
        raise ValueError(f"The plan {repeated!r} is given twice. A study compares different plans: leave one out.")


def separate(text: str) -> list[str]:
    """The plans in one argument of the command: several separated by commas, or one with settings after a colon.

    >>> separate("one-shot,grid(0.1,1)"), separate("grid:0.1,1")
    (['one-shot', 'grid(0.1,1)'], ['grid:0.1,1'])
    """
    plans = split(text)
    with_colon = [plan for plan in plans if WITH_COLON.match(plan)]
    if not with_colon:
        return plans
    settings = [plan for plan in plans if plan not in with_colon]
    if len(with_colon) > 1 or with_colon[0] != plans[0] or any(_looks_like_a_plan(part) for part in settings):
        raise ValueError(
            f"{text!r} can be read in more than one way: behind a colon, commas separate settings. Separate plans by "
            "spaces, as in one-shot grid:0.1,1,10, or put settings in brackets."
        )
    return [text.strip()]


#: How a plan begins whose settings are behind a colon.
WITH_COLON = re.compile(r"\s*[\w-]+\s*:")


def _looks_like_a_plan(setting: str) -> bool:
    return "=" not in setting.partition("(")[0] and setting.partition("(")[0].strip() in PLANS


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


def usage(name: str) -> str:
    """How a plan is written."""
    kind = Halved if name == "halving" else Learned
    named = [field.name for field in dataclasses.fields(kind)] if PLANS[name].kind in OF_LEARNED else []
    by_name = ", ".join(f"{setting}=..." for setting in named) or "name=number, ..."
    words: dict[Any, str] = {Parameter.VAR_POSITIONAL: "number, ...", Parameter.VAR_KEYWORD: by_name}
    shown = [words.get(p.kind, f"{p.name}=...") for p in _parameters(name)]
    return f"{name}({', '.join(shown)})" if shown else name


def _parameters(name: str) -> list[Parameter]:
    """What a plan takes besides the task."""
    return list(inspect.signature(PLANS[name].make).parameters.values())[1:]


def _check_positional(name: str, values: Sequence[Any]) -> None:
    """Raise if the plan takes its settings by name alone, or none at all."""
    parameters = _parameters(name)
    if not values or any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
        return
    given = ", ".join(map(_format, values))
    if not parameters:
        raise ValueError(f"The plan {name!r} takes no settings; got {given}. Write {name}.")
    raise ValueError(f"The plan {name!r} takes settings by name alone; got {given}. It is written {usage(name)}.")


def _check_named(name: str, settings: Mapping[str, Any]) -> None:
    """Raise if the plan has no setting of a name."""
    parameters = _parameters(name)
    unknown = next((key for key in settings if key not in [p.name for p in parameters]), None)
    if unknown is None or any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        return
    if not parameters:
        raise ValueError(f"The plan {name!r} takes no settings; got {unknown!r}. Write {name}.")
    known = [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
    raise ValueError(
        f"The plan {name!r} has no setting {unknown!r}; it has: {quoted(known) or 'none by name'}."
        f"{did_you_mean(unknown, known)}"
    )


#: The kinds whose settings are those of learned weights.
OF_LEARNED = ("learned", "control", "sweep")


def _value(text: str) -> Any:
    """A setting: a number, several separated by /, or a word."""
    if "/" in text:
        return tuple(_value(part) for part in text.split("/"))
    try:
        return float(text) if text.strip() in ("inf", "-inf") else ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def _format(value: Any) -> str:
    return (
        "/".join(map(_format, value)) if isinstance(value, tuple) else exact(value) if is_number(value) else str(value)
    )


# The plans


def _learned_weighting(task: Task, settings: Mapping[str, Any]) -> Learned:
    names = [field.name for field in dataclasses.fields(Learned)]
    given = {k: v for k, v in settings.items() if v is not None}
    own = task.one_shot.get("units", "raw")
    units = given.get("units", own)
    usual = {"init": 1.0} if units == "gradient" else {}
    chosen = usual | (dict(task.one_shot) if units == own else {}) | given  # what suits raw units suits no others
    unknown = next((key for key in chosen if key not in names), None)
    if unknown is not None:
        raise ValueError(
            f"A run with learned weights has the settings {quoted(names)}; got {unknown!r}."
            f"{did_you_mean(unknown, names)}"
        )
    return Learned(**chosen)


def _one_shot(task: Task, /, **settings: Any) -> list[Weighting]:
    return [_learned_weighting(task, settings)]


def _units(task: Task, /, **settings: Any) -> list[Weighting]:
    return [_learned_weighting(task, {"units": "gradient", **settings})]


def _halving(task: Task, /, **settings: Any) -> list[Weighting]:
    names = [field.name for field in dataclasses.fields(Halved)]
    unknown = next((key for key in settings if key not in names), None)
    if unknown is not None:
        hint = did_you_mean(unknown, names)
        raise ValueError(f"The plan 'halving' has the settings {quoted(names)}; got {unknown!r}.{hint}")
    own = dict(task.one_shot) if task.one_shot.get("units") == "gradient" else {}
    return [Halved(**own | {key: value for key, value in settings.items() if value is not None})]


def _replay(task: Task, /, **settings: Any) -> list[Weighting]:
    return [Replay(_learned_weighting(task, settings))]


def _final(task: Task, /, **settings: Any) -> list[Weighting]:
    return [Final(_learned_weighting(task, settings))]


def _uniform(task: Task) -> list[Weighting]:
    return [Fixed.of((1.0,) * len(task.terms))]


def _base(task: Task) -> list[Weighting]:
    return [Fixed.of((1.0, *(0.0,) * (len(task.terms) - 1)))]


def _fixed(task: Task, /, *weights: float, **by_term: float) -> list[Weighting]:
    if by_term:
        if set(by_term) != set(task.terms) or weights:
            raise names_error("The plan 'fixed'", task.terms, list(by_term))
        weights = tuple(by_term[term] for term in task.terms)
    return [Fixed.of(weights)] if weights else _uniform(task)


def _grid(task: Task, /, *ratios: float, **by_term: float | tuple[float, ...]) -> Grid:
    auxiliary = task.terms[1:]
    if by_term and (ratios or set(by_term) != set(auxiliary)):
        raise names_error("The plan 'grid', with values for each auxiliary term,", auxiliary, list(by_term))
    usual = (0.01, 0.1, 1.0, 10.0, 100.0) if len(auxiliary) == 1 else (0.1, 1.0, 10.0)
    axes = [by_term.get(term, ratios or usual) for term in auxiliary]
    values = [axis if isinstance(axis, tuple) else (axis,) for axis in axes]
    for value in itertools.chain(*values):
        if not (is_number(value) and 0 <= value < math.inf):
            raise ValueError(f"A grid is of ratios to the base weight, numbers of at least 0; got {value!r}.")
    _check_size("grid", math.prod(map(len, values)), task)
    return Grid(tuple(tuple(map(float, axis)) for axis in values))


LARGEST = 100_000  # points of a plan


def _check_size(name: str, count: int, task: Task) -> None:
    """Raise before more points are listed than memory, and the study's manifest, should hold."""
    if count > LARGEST:
        shown = f"{count:,}" if count < 10**15 else f"about 10^{math.floor(math.log10(count))}"
        raise ValueError(
            f"The plan {name!r} has {shown} points for the {len(task.terms)} terms of the task {task.name!r}; a study "
            f"lists at most {LARGEST:,}. Use {smaller(name, task)}{', or name fewer ratios' * (name == 'grid')}."
        )


def _grid_3x3(task: Task) -> list[Weighting]:
    _check_term_count("grid-3x3", task, 3)
    return [Fixed.of((1.0, a, b)) for a in (0.01, 0.25, 1.0) for b in (0.01, 0.1, 1.0)]


#: log10 of the ratio, as in the paper's figure of the segmentation experiment.
LINE = (-math.inf, -2, -1.5, -1, -0.5, 0, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)


def _grid_13(task: Task) -> list[Weighting]:
    _check_term_count("grid-13", task, 2)
    return [Fixed.of((1.0, 10.0**exponent)) for exponent in LINE]


def _check_term_count(name: str, task: Task, count: int) -> None:
    if len(task.terms) != count:
        raise ValueError(
            f"The plan {name!r} is the paper's grid for {count} terms; the task {task.name!r} has {len(task.terms)}. "
            "Use 'grid'."
        )


def _random(task: Task, *, trials: int = 9, low: float = 0.01, high: float = 100.0, seed: int = 0) -> list[Weighting]:
    search = Search("random", trials, low, high)
    search.check()
    _check_size("random", trials, task)
    rng = random.Random(seed)
    draw = [[math.exp(rng.uniform(*search.range)) for _ in task.terms[1:]] for _ in range(trials)]
    return [Fixed.of((1.0, *ratios)) for ratios in draw]


def _tpe(task: Task, *, trials: int = 20, low: float = 0.01, high: float = 100.0) -> Search:
    return Search("tpe", trials, low, high)


def _asha(task: Task, *, trials: int = 27, eta: int = 3, low: float = 0.01, high: float = 100.0) -> Search:
    length = task.steps or task.epochs
    if length is None:
        raise ValueError(
            "The plan 'asha' needs a task with a setting 'steps' or 'epochs', the unit in which it calls trial.report; "
            f"the task {task.name!r} has neither."
        )
    rung = max(1, length // eta**RUNGS) if isinstance(eta, int) and eta >= 2 else None
    return Search("asha", trials, low, high, eta, rung)


def _peer(method: str) -> Callable[..., list[Weighting]]:
    def make(task: Task, /, **settings: Any) -> list[Weighting]:
        from trainonce.study.weightings.peers import Peer

        epoch = settings.pop("epoch", None) if method == "dwa" else None
        return [Peer(method, settings, epoch)]

    return make


def _sweep_init(task: Task, /, *values: float, **settings: Any) -> list[Weighting]:
    return [_learned_weighting(task, {**settings, "init": v}) for v in values or (0.001, 0.01, 0.1, 1.0, 10.0)]


def _sweep_decay(task: Task, /, *values: float, **settings: Any) -> list[Weighting]:
    return [_learned_weighting(task, {**settings, "decay": v}) for v in values or (0.02, 0.2, 2.0, 20.0, 200.0)]


def _sweep_lr(task: Task, /, *values: float, **settings: Any) -> list[Weighting]:
    rate: Any = task.settings.get("lr")
    if not values and not is_number(rate):
        raise ValueError(f"The task {task.name!r} has no setting 'lr' to start from: write sweep-lr(0.001,0.01,0.1).")
    rates = values or [float(f"{rate * factor:.12g}") for factor in (0.1, 1.0, 10.0, 100.0)]
    return [_learned_weighting(task, {**settings, "lr": v}) for v in rates]


#: Every plan by its name, with what it is, in a line, for the help of the command.
PLANS = {
    "one-shot": PlanType(
        "learned", _one_shot, "weights learned in one run (init, decay, preset, lr; or units=gradient)"
    ),
    "units": PlanType("learned", _units, "gradient units in one run, as one-shot(units=gradient)"),
    "halving": PlanType(
        "learned", _halving, "gradient units, begun with far more and far less of each term; the best goes on"
    ),
    "uniform": PlanType("fixed", _uniform, "the same weight for every term"),
    "base": PlanType("fixed", _base, "the base term alone"),
    "fixed": PlanType("fixed", _fixed, "given weights: fixed(1,10,0.1) or fixed(ce=1,consistency=10,...)"),
    "grid": PlanType("set", _grid, "every combination of ratios to the base: grid(0.1,1,10) or grid(x=0.1/1,y=1/10)"),
    "grid-3x3": PlanType("set", _grid_3x3, "the paper's grid of three terms"),
    "grid-13": PlanType("set", _grid_13, "the paper's 13 ratios of two terms, 0 included"),
    "random": PlanType("set", _random, "random ratios, log-uniform (trials, low, high, seed)"),
    "tpe": PlanType("search", _tpe, "Optuna's TPE (trials, low, high)"),
    "asha": PlanType("search", _asha, "successive halving, of tasks that call trial.report (trials, eta, low, high)"),
    **{name: PlanType("peer", _peer(name), peer.about) for name, peer in PEERS.items()},
    "replay": PlanType("control", _replay, "the weights of another seed's one-shot run, replayed step by step"),
    "final": PlanType("control", _final, "the last weights of another seed's one-shot run, from the first step on"),
    "sweep-init": PlanType("sweep", _sweep_init, "the one-shot plan from several starts"),
    "sweep-decay": PlanType("sweep", _sweep_decay, "the one-shot plan under several decays"),
    "sweep-lr": PlanType("sweep", _sweep_lr, "the one-shot plan with several learning rates of the exponents"),
}

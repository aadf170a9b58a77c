"""Plans: the ways to choose weights that a study compares, by name.

A plan is written as it is on the command line: a name, and settings in brackets, such as ``yoto(init=1)``,
``grid(0.1,1,10)`` or ``tpe(trials=30)``, or after a colon, which no shell minds: ``grid:0.1,1,10``. :data:`PLANS` is
the one list of them. A rule of one's own is a plan, too, named as tasks are: ``my_rules.py:GradNorm(alpha=1.5)``.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import random
import re
from collections import Counter
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trainonce.study.cost import smaller
from trainonce.study.peers import LEFT_OUT
from trainonce.study.plan_text import OWN, is_own, name_and_inside, own_name, read, show, split, write
from trainonce.study.rule_classes import parameters
from trainonce.study.rules import REGULARIZERS, Control, Rule, fixed, grid, make
from trainonce.study.search import Search
from trainonce.text import did_you_mean, is_number, names_error, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trainonce.study.task import Task

Kind = Literal["rule", "fixed", "set", "search", "peer", "control", "sweep"]

#: How the trials of each kind of plan are read. Reports give every kind a colour of its own.
KINDS: dict[Kind, str] = {
    "rule": "Rules: one training each",
    "peer": "Rules of other papers, by TorchJD: one training each",
    "fixed": "One fixed choice of weights",
    "set": "Several fixed choices: the one that does best on validation counts",
    "search": "Searches: what each seed's search has chosen counts",
    "control": "Controls: is it the coefficients, or that they follow this run's losses?",
    "sweep": "Sweeps: every value is shown, none is chosen",
}
SINGLE: tuple[Kind, ...] = ("rule", "fixed", "peer")  # they train once
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
    rules: tuple[Rule, ...] = ()
    search: Search | None = None
    axes: Axes | None = None


class Grid(NamedTuple):
    """The ratios of each auxiliary term, of which a plan tries every combination."""

    axes: Axes


class PlanType(NamedTuple):
    """A kind of plan.

    ``kind`` says how its trials are read, ``make`` returns its rules for a task, ``about`` says what it is, in a line.
    ``trainings`` is what a seed costs, as text; ``passes`` names backward passes beyond one a step.
    """

    kind: Kind
    make: Callable[..., list[Rule] | Search | Grid]
    about: str
    paper: str = ""
    trainings: str = "1"
    passes: str = ""


def description(plan: PlanType) -> str:
    """Say what a plan is, what it costs besides its trainings, and its paper."""
    paper = f" [{plan.paper}]" if plan.paper else ""
    return f"{plan.about}{f'; {plan.passes}' if plan.passes else ''}{paper}"


def parse(text: str, task: Task) -> Plan:
    """The plan that a text names, for a task.

    >>> from trainonce.recipes.digits import digits
    >>> plan = parse("grid(0.1, 1)", digits)
    >>> [rule.label for rule in plan.rules]
    ['1 : 0.1 : 0.1', '1 : 0.1 : 1', '1 : 1 : 0.1', '1 : 1 : 1']
    """
    return build(*read(text), task)


def name_of(text: str) -> str:
    """The name by which a study knows the plan that a text names, however it is written.

    >>> name_of("grid:0.10,1.0"), name_of("uniform")
    ('grid(0.1,1)', 'uniform')
    """
    return write(*read(text))


def check_names(texts: Iterable[str]) -> None:
    """Raise if there is no plan of one of the names, which needs no task."""
    for text in texts:
        _check_name(name_and_inside(text)[0])


def _check_name(name: str) -> None:
    if is_own(name):
        return
    reason = next((why for scalarizer, why in LEFT_OUT.items() if scalarizer.lower() == name.lower()), None)
    if name not in PLANS and reason is not None:
        raise ValueError(f"TorchJD's {name} is not among the plans: {reason}.")
    if name not in PLANS:
        raise ValueError(f"There is no plan {name!r}; there are: {', '.join(PLANS)}.{did_you_mean(name, PLANS)}")


def build(name: str, values: Sequence[Any], settings: Mapping[str, Any], task: Task) -> Plan:
    """The plan with the given settings; raises one sentence about what does not fit."""
    _check_name(name)
    kind: Kind = "rule" if is_own(name) else PLANS[name].kind
    maker = _own(name) if is_own(name) else PLANS[name].make
    _check_positional(name, maker, values)
    _check_named(name, maker, settings)
    title = write(name, values, settings)
    try:
        made = maker(task, *values, **settings)
        if isinstance(made, Search):
            made.check()
            return Plan(title, kind, search=made)
        if isinstance(made, Grid):
            return Plan(title, kind, tuple(grid(made.axes)), axes=made.axes)
        for rule in made:
            rule.check(task)
    except (TypeError, ArithmeticError) as error:
        text = re.sub(r"^[\w.<>]+\(\) ", "it ", str(error))
        raise ValueError(f"The plan {title!r} cannot be made: {text}. It is written {usage(name)}.") from None
    return Plan(title, kind, tuple(dict.fromkeys(made)))


def check_different(plans: Sequence[Plan]) -> None:
    """Raise if a plan is there twice."""
    repeated = next((name for name, count in Counter(plan.name for plan in plans).items() if count > 1), None)
    if repeated is not None:
        raise ValueError(f"The plan {repeated!r} is given twice. A study compares different plans: leave one out.")


def separate(text: str) -> list[str]:
    """The plans in one argument of the command: several separated by commas, or one with settings after a colon.

    >>> separate("yoto,grid(0.1,1)"), separate("grid:0.1,1")
    (['yoto', 'grid(0.1,1)'], ['grid:0.1,1'])
    """
    plans = split(text)
    with_colon = [plan for plan in plans if WITH_COLON.match(plan)]
    if not with_colon:
        return plans
    settings = [plan for plan in plans if plan not in with_colon]
    if len(with_colon) > 1 or with_colon[0] != plans[0] or any(_looks_like_a_plan(part) for part in settings):
        raise ValueError(
            f"{text!r} can be read in more than one way: behind a colon, commas separate settings. Separate plans by "
            "spaces, as in yoto grid:0.1,1,10, or put settings in brackets."
        )
    return [text.strip()]


#: How a plan begins whose settings are behind a colon.
WITH_COLON = re.compile(rf"\s*(?:(?:{OWN})|[\w-]+)\s*:")


def _looks_like_a_plan(setting: str) -> bool:
    return "=" not in setting.partition("(")[0] and setting.partition("(")[0].strip() in PLANS


def usage(name: str) -> str:
    """How a plan is written."""
    maker = _own(name) if is_own(name) else PLANS[name].make
    settings = getattr(maker, "settings", None)
    by_name = ", ".join(f"{setting}=..." for setting in settings()) if settings is not None else "name=number, ..."
    words: dict[Any, str] = {Parameter.VAR_POSITIONAL: "number, ...", Parameter.VAR_KEYWORD: by_name}
    shown = [text for p in _parameters(maker) if (text := words.get(p.kind, f"{p.name}=..."))]
    return f"{name}({', '.join(shown)})" if shown else name


def _parameters(maker: Callable[..., Any]) -> list[Parameter]:
    """What a plan takes besides the task."""
    return list(inspect.signature(maker).parameters.values())[1:]


def _check_positional(name: str, maker: Callable[..., Any], values: Sequence[Any]) -> None:
    """Raise if the plan takes its settings by name alone, or none at all."""
    parameters = _parameters(maker)
    by_place = sum(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
    if len(values) <= by_place or any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
        return
    given = ", ".join(map(show, values))
    if not parameters:
        raise ValueError(f"The plan {name!r} takes no settings; got {given}. Write {name}.")
    most = "by name, but for the first" if by_place else "by name alone"
    raise ValueError(f"The plan {name!r} takes settings {most}; got {given}. It is written {usage(name)}.")


def _check_named(name: str, maker: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise if the plan has no setting of a name."""
    parameters = _parameters(maker)
    unknown = next((key for key in settings if key not in [p.name for p in parameters]), None)
    if unknown is None or any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        return
    if not parameters:
        raise ValueError(f"The plan {name!r} takes no settings; got {unknown!r}. Write {name}.")
    known = [p.name for p in parameters if p.kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    raise ValueError(
        f"The plan {name!r} has no setting {unknown!r}; it has: {quoted(known) or 'none by name'}."
        f"{did_you_mean(unknown, known)}"
    )


# The plans


class _RulePlan:
    """What makes the plan of a rule that trains once: called with a task and settings."""

    def __init__(self, rule: str, place: str = "") -> None:
        self.rule, self.place = rule, place

    def __call__(self, task: Task, /, **settings: Any) -> list[Rule]:
        given = {key: value for key, value in settings.items() if value is not None}
        if self.rule == "CompositeLoss":
            usual = dict(task.yoto)
            if {"lr", "travel"} & given.keys():  # two answers to one question
                usual = {key: value for key, value in usual.items() if key not in ("lr", "travel")}
            given = {**usual, **given}
            parts = given.get("regularizer")
            if isinstance(parts, str) and parts in REGULARIZERS:
                given["regularizer"] = REGULARIZERS[parts]
        return [make(self.rule, given, self.place)]

    def settings(self) -> list[str]:
        return list(parameters(self.rule, self.place))


def _own(name: str) -> _RulePlan:
    place = name.rpartition(":")[0]
    return _RulePlan(own_name(name), str(Path(place).absolute()) if place.endswith(".py") else place)


_yoto, _balance = _RulePlan("CompositeLoss"), _RulePlan("BalancedLoss")


class _ControlPlan:
    """What makes a control: of the rule ``of``, with the other settings."""

    def __init__(self, *, last: bool) -> None:
        self.last = last

    def __call__(self, task: Task, /, *, of: str = "yoto", **settings: Any) -> list[Rule]:
        maker = _own(of) if is_own(of) else PLANS[of].make if of in PLANS else None
        if not isinstance(maker, _RulePlan):
            rules = ", ".join(name for name, plan in PLANS.items() if isinstance(plan.make, _RulePlan))
            raise ValueError(
                f"A control is of one of the rules {rules}, or of your own; got of={of}. Settings of the rule stand "
                "beside it: replay(of=my_rules.py:GradNorm,alpha=1.5)."
            )
        return [Control.make(rule, last=self.last) for rule in maker(task, **settings)]

    def settings(self) -> list[str]:
        return _yoto.settings()


def _sweep(setting: str, usual: Sequence[float]) -> Callable[..., list[Rule]]:
    def sweep(task: Task, /, *values: float, **settings: Any) -> list[Rule]:
        return [rule for v in values or usual for rule in _yoto(task, **{**settings, setting: v})]

    sweep.settings = _yoto.settings  # type: ignore[attr-defined]
    return sweep


def _sweep_lr(task: Task, /, *values: float, **settings: Any) -> list[Rule]:
    rate: Any = task.settings.get("lr")
    if not values and not is_number(rate):
        raise ValueError(f"The task {task.name!r} has no setting 'lr' to start from: write sweep-lr(0.001,0.01,0.1).")
    rates = values or [float(f"{rate * factor:.12g}") for factor in (0.1, 1.0, 10.0, 100.0)]
    return _sweep("lr", rates)(task, **settings)


_sweep_lr.settings = _yoto.settings  # type: ignore[attr-defined]


def _uniform(task: Task) -> list[Rule]:
    return [fixed((1.0,) * len(task.terms))]


def _own_weights(task: Task) -> list[Rule]:
    return [fixed([task.own[term] for term in task.terms])] if task.own else _uniform(task)


def _base(task: Task) -> list[Rule]:
    return [fixed((1.0, *(0.0,) * (len(task.terms) - 1)))]


def _fixed(task: Task, /, *weights: float, **by_term: float) -> list[Rule]:
    if by_term:
        if set(by_term) != set(task.terms) or weights:
            raise names_error("The plan 'fixed'", task.terms, list(by_term))
        weights = tuple(by_term[term] for term in task.terms)
    return [fixed(weights)] if weights else _uniform(task)


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


def _grid_3x3(task: Task) -> list[Rule]:
    _check_term_count("grid-3x3", task, 3)
    return [fixed((1.0, a, b)) for a in (0.01, 0.25, 1.0) for b in (0.01, 0.1, 1.0)]


#: log10 of the ratio, as in the paper's figure of the segmentation experiment.
LINE = (-math.inf, -2, -1.5, -1, -0.5, 0, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)


def _grid_13(task: Task) -> list[Rule]:
    _check_term_count("grid-13", task, 2)
    return [fixed((1.0, 10.0**exponent)) for exponent in LINE]


def _check_term_count(name: str, task: Task, count: int) -> None:
    if len(task.terms) != count:
        raise ValueError(
            f"The plan {name!r} is the paper's grid for {count} terms; the task {task.name!r} has {len(task.terms)}. "
            "Use 'grid'."
        )


def _random(task: Task, trials: int = 9, *, low: float = 0.01, high: float = 100.0, seed: int = 0) -> list[Rule]:
    search = Search("random", trials, low, high)
    search.check()
    _check_size("random", trials, task)
    rng = random.Random(seed)
    draw = [[math.exp(rng.uniform(*search.range)) for _ in task.terms[1:]] for _ in range(trials)]
    return [fixed((1.0, *ratios)) for ratios in draw]


def _tpe(task: Task, trials: int = 20, *, low: float = 0.01, high: float = 100.0) -> Search:
    return Search("tpe", trials, low, high)


def _sha(task: Task, trials: int = 27, *, eta: int = 3, low: float = 0.01, high: float = 100.0) -> Search:
    return Search("sha", trials, low, high, eta)


#: Every plan by its name: what it is, its paper and its cost. The command's list, and the only one.
PLANS = {
    "yoto": PlanType(
        "rule",
        _yoto,
        "the paper's rule: a softmax of exponents that train with the model (init, decay, regularizer, lr, travel)",
        paper="You Only Train Once, Sakaridis 2025",
    ),
    "balance": PlanType(
        "rule",
        _balance,
        "gradient balance: every term's gradient about as strong as the base's, aligned by a validation loss (at, "
        "follow, every, travel)",
        paper="ours; relatives: GradNorm, Chen et al. 2018; EnCodec's balancer, Défossez et al. 2022",
        passes="K+2 more backward passes at 140 of 10,000 steps",
    ),
    "uw": PlanType("peer", _RulePlan("uw"), "uncertainty weighting", paper="Kendall, Gal and Cipolla 2018"),
    "imtl-l": PlanType(
        "peer", _RulePlan("imtl-l"), "impartial multi-task learning, on losses (IMTL-L)", paper="Liu et al. 2021"
    ),
    "dwa": PlanType(
        "peer", _RulePlan("dwa"), "dynamic weight average (temperature, epoch in steps)", paper="Liu et al. 2019"
    ),
    "famo": PlanType(
        "peer",
        _RulePlan("famo"),
        "fast adaptive multitask optimization (FAMO), a batch late (lr, weight_decay)",
        paper="Liu et al. 2023",
    ),
    "geometric": PlanType(
        "peer", _RulePlan("geometric"), "the geometric mean of the losses", paper="Chennupati et al. 2019"
    ),
    "random-weights": PlanType(
        "peer", _RulePlan("random-weights"), "new random weights in every step", paper="Lin et al. 2022"
    ),
    "uniform": PlanType("fixed", _uniform, "the same weight for every term"),
    "own": PlanType("fixed", _own_weights, "your own weights, of @task(own=...); equal ones without it"),
    "base": PlanType("fixed", _base, "the base term alone"),
    "fixed": PlanType("fixed", _fixed, "given weights: fixed(1,10,0.1) or fixed(ce=1,consistency=10,...)"),
    "grid": PlanType(
        "set",
        _grid,
        "every combination of ratios to the base: grid(0.1,1,10) or grid(x=0.1/1,y=1/10)",
        trainings="5, or 3^K",
    ),
    "grid-3x3": PlanType("set", _grid_3x3, "the paper's grid of three terms", paper="Sakaridis 2025", trainings="9"),
    "grid-13": PlanType(
        "set", _grid_13, "the paper's 13 ratios of two terms, 0 included", paper="Sakaridis 2025", trainings="13"
    ),
    "random": PlanType(
        "set",
        _random,
        "random ratios, log-uniform (trials, low, high, seed)",
        paper="Bergstra and Bengio 2012",
        trainings="9",
    ),
    "tpe": PlanType("search", _tpe, "Optuna's TPE (trials, low, high)", paper="Bergstra et al. 2011", trainings="20"),
    "sha": PlanType(
        "search",
        _sha,
        "successive halving, of tasks that can pause (trials, eta, low, high)",
        paper="Jamieson and Talwalkar 2016",
        trainings="7, 27 begun",
    ),
    "replay": PlanType(
        "control",
        _ControlPlan(last=False),
        "the coefficients of another seed's run, replayed step by step: replay(of=balance), or of yoto",
        trainings="1 + 1",
    ),
    "final": PlanType(
        "control",
        _ControlPlan(last=True),
        "the last coefficients of another seed's run, from the first step on: final(of=balance), or of yoto",
        trainings="1 + 1",
    ),
    "sweep-init": PlanType(
        "sweep", _sweep("init", (0.001, 0.01, 0.1, 1.0, 10.0)), "yoto from several starts", trainings="5"
    ),
    "sweep-decay": PlanType(
        "sweep", _sweep("decay", (0.02, 0.2, 2.0, 20.0, 200.0)), "yoto under several decays", trainings="5"
    ),
    "sweep-lr": PlanType("sweep", _sweep_lr, "yoto with several learning rates of the exponents", trainings="4"),
}

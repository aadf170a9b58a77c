"""The rules of records before format 4, which called them by kinds and left out of their keys what had its default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.study.rules import REGULARIZERS, Control, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What formats 1 to 3 had as the defaults of learned weights, which keys left out.
LEARNED = {"init": 0.1, "decay": 2.0, "preset": "paper", "lr": None}
#: The version of the paper's rule that computes, with ``lr="model"``, what theirs did.
SINCE = 2
UNITS = {"units": "raw", "blend": None, "limit": None, "at": "all", "drift": 0.0, "signal": "held_out"}
#: What format 1 called the presets, which are the regularizers of today.
PRESETS = {"printed": "paper", "consistent": "softplus"}


def read_former(content: Mapping[str, Any]) -> Rule:
    """Return the rule of a record before format 4."""
    kind, fields = content["kind"], {key: value for key, value in content.items() if key != "kind"}
    match kind:
        case "fixed":
            return Rule("FixedLoss", {"weights": [float(w) for w in fields["weights"]]}, former=content)
        case "learned":
            return _read_learned(fields, {"kind": kind, **_without_defaults(fields)})
        case "replay" | "final":
            of = _without_defaults(fields["of"])
            donor_rule = _read_learned(fields["of"], {"kind": "learned", **of})
            return Control.make(donor_rule, last=kind == "final", former={"kind": kind, "of": of})
        case "peer":
            kept = {key: value for key, value in fields.items() if value not in (None, {})}
            epoch = {} if fields.get("epoch") is None else {"epoch": fields["epoch"]}
            settings = {**fields.get("settings", {}), **epoch}
            return Rule(fields["method"], settings, former={"kind": kind, **kept})
    raise ValueError(f"unknown kind of rule {kind!r}")


def _without_defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    preset = fields.get("preset", "paper")
    renamed = {**fields, "preset": PRESETS.get(preset, preset)}
    return {key: value for key, value in renamed.items() if value != (LEARNED | UNITS)[key]}


def _read_learned(fields: Mapping[str, Any], former: Mapping[str, Any]) -> Rule:
    found: dict[str, Any] = LEARNED | UNITS | dict(fields)
    preset = PRESETS.get(found["preset"], found["preset"])
    raw = {"init": found["init"], "decay": found["decay"], "regularizer": REGULARIZERS[preset], "lr": found["lr"]}
    if found["units"] == "raw":
        rate = {"lr": "model" if found["lr"] is None else found["lr"], "travel": None}
        return Rule("CompositeLoss", raw | rate, SINCE, former=former)
    settings = {"at": found["at"], "every": 0.05, "travel": found["drift"]}
    settings |= {"follow": 0.75 if found["blend"] is None else found["blend"]}
    settings |= {} if found["limit"] is None else {"limit": found["limit"]}
    settings |= {} if found["init"] == 1.0 else {"init": found["init"]}
    settings |= raw | {"signal": "loss"} if found["signal"] == "loss" else {}
    return Rule("BalancedLoss", settings, 0, former=former)

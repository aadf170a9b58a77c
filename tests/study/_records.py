"""Records to write."""

from _stores import balance, final, fixed, replay, yoto

from trainonce.study import Record
from trainonce.study.rules import Rule, key_of

RULES = [
    fixed((1.0, 10.0, 0.0)),
    yoto(init=0.5, decay=2.0, regularizer=["softplus"], lr=0.1),
    yoto(init={"b": 0.1, "c": 3.0}),
    balance(at="last"),
    replay(yoto()),
    final(balance()),
    Rule("dwa", {"temperature": 2.0, "epoch": 5}),
    Rule("my_rules.py:GradNorm", {"alpha": 1.5}, 3, source="0123"),
]


def record(seed=0, rule=RULES[0], **more):
    return Record(key_of("task", rule, seed), "line", rule, seed, **{"status": "done"} | more)

"""Records to write."""

from trainonce.study import Record
from trainonce.study.weightings import Final, Fixed, Learned, Replay, key_of
from trainonce.study.weightings.peers import Peer

WEIGHTINGS = [
    Fixed.of((1.0, 10.0, 0.0)),
    Learned(init=0.5, decay=2.0, preset="softplus", lr=0.1),
    Learned(init={"b": 0.1, "c": 3.0}),
    Replay(Learned()),
    Final(Learned(decay=0.0)),
    Peer("dwa", {"temperature": 2.0}, 5),
]


def record(seed=0, weighting=WEIGHTINGS[0], **more):
    return Record(key_of("task", weighting, seed), "line", weighting, seed, **{"status": "done"} | more)

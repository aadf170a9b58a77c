"""Settings of a depth training that takes seconds on a CPU."""

TINY = {
    "size": (30, 40),
    "shape": (28, 42),
    "dim": 32,
    "heads": 2,
    "batch": 4,
    "steps": 4,
    "evaluations": 2,
    "limit": 6,
    "points": 200,
    "graphed": False,
}

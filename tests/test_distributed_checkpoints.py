"""Two ranks: history, checkpoints, and weights that are not learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from _rank_problem import (
    NEEDS_RANKS,
    STEPS,
    TERMS,
    Net,
    Placed,
    Setting,
    backward_in_parts,
    double,
    fsdp_inside,
    fsdp_own,
    new_criterion,
    place,
    values,
)

import trainonce

if TYPE_CHECKING:
    from _two_ranks import TwoRanks

pytestmark = NEEDS_RANKS


# History and checkpoints


def record(placement: str, path: str) -> tuple[dict[str, list[float]], list[list[float]]]:
    placed = place(placement, 3)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=0.9)
    history = trainonce.History(path, block=2)
    trainonce.attach(optimizer, placed.criterion, history=history)
    exponents = []
    for step in range(STEPS):
        exponents.append(values(placed.criterion.exponents))
        backward_in_parts(placed, step, Setting(micro=2))
        optimizer.step()
        optimizer.zero_grad()
    history.flush()
    return history.columns(), exponents


@pytest.mark.parametrize("placement", ["ddp-outside", "ddp-inside-in_forward", "fsdp-sharded-in_forward"])
def test_history_is_written_by_the_first_rank(ranks: TwoRanks, placement: str, tmp_path: Any) -> None:
    path = tmp_path / "run" / "history.jsonl"
    found = ranks(record, placement, str(path))
    assert [p.name for p in path.parent.iterdir()] == ["history.jsonl"]
    assert len(path.read_text().splitlines()) == 1 + STEPS
    written = trainonce.History.load(path).columns()
    assert written == found[0][0]
    assert written["step"] == [1, 2, 3, 4, 5]
    for i, term in enumerate(TERMS[1:]):
        assert written[f"exponent/{term}"] == [row[i] for row in found[0][1]]
    shared = [name for name in written if not name.startswith("loss/")]  # a rank's losses are its own
    assert {name: found[0][0][name] for name in shared} == {name: found[1][0][name] for name in shared}
    assert found[0][0]["loss/fit"] != found[1][0]["loss/fit"]


def save_and_load(placement: str, folder: str) -> dict[str, Any]:
    """Through files, into a model that starts elsewhere; then both go on."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    runs = []
    for _ in range(2):
        placed = place(placement, 3)
        optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=0.9)
        placed.criterion.lr = 0.3
        trainonce.attach(optimizer, placed.criterion)
        runs.append((placed, optimizer))

    def go(placed: Placed, optimizer: torch.optim.Optimizer, start: int, stop: int) -> list[float]:
        for step in range(start, stop):
            backward_in_parts(placed, step, Setting())
            optimizer.step()
            optimizer.zero_grad()
        return values(placed.criterion.exponents)

    saved = go(*runs[0], 0, 3)
    model, optimizer = states.get_state_dict(runs[0][0].model, runs[0][1])
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    model, optimizer = states.get_state_dict(runs[1][0].model, runs[1][1])
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    states.set_state_dict(runs[1][0].model, runs[1][1], model_state_dict=model, optim_state_dict=optimizer)
    loaded = values(runs[1][0].criterion.exponents)
    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = states.get_model_state_dict(runs[1][0].model, options=options)
    return {
        "saved": saved,
        "loaded": loaded,
        "on": [go(*run, 3, 6) for run in runs],
        "full": {key: value.tolist() for key, value in full.items() if "criterion" in key},
    }


@pytest.mark.parametrize("placement", ["fsdp-sharded-in_forward", "fsdp-ignored-in_forward", "ddp-inside-in_forward"])
def test_checkpoint_round_trip_keeps_names_and_values(ranks: TwoRanks, placement: str, tmp_path: Any) -> None:
    found = ranks(save_and_load, placement, str(tmp_path))
    assert found[0]["saved"] == found[1]["saved"] == found[0]["loaded"] == found[1]["loaded"]
    assert found[0]["on"][0] == found[0]["on"][1] == found[1]["on"][0] == found[1]["on"][1]
    assert found[0]["saved"] != found[0]["on"][0]
    full = found[0]["full"]
    assert set(full) == {"criterion.exponents", "criterion._extra_state"}
    # One process reads it, in another order of the terms.
    other = trainonce.CompositeLoss(["fit", "bend", "far", "size"], lr="model").double()
    names = torch.tensor(full["criterion._extra_state"], dtype=torch.uint8)
    numbers = double(full["criterion.exponents"])
    other.load_state_dict({"exponents": numbers, "_extra_state": names})
    assert values(other.exponents) == [full["criterion.exponents"][i] for i in (2, 0, 1)]


def save_frozen(folder: str) -> bool:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    old, new = fsdp_inside(3, in_forward=True), fsdp_inside(3, in_forward=True)
    old.criterion.freeze()
    dcp.save(states.get_model_state_dict(old.model), checkpoint_id=folder)
    state = states.get_model_state_dict(new.model)
    dcp.load(state, checkpoint_id=folder)
    states.set_model_state_dict(new.model, state)
    return new.criterion.frozen


def test_checkpoint_of_a_frozen_criterion(ranks: TwoRanks, tmp_path: Any) -> None:
    """The place that is read into must have the size of what was saved, frozen or not."""
    assert ranks(save_frozen, str(tmp_path)) == [True, True]


def load_reordered() -> list[float]:
    from torch.distributed.checkpoint import state_dict as states
    from torch.distributed.fsdp import fully_shard

    saved = states.get_model_state_dict(fsdp_inside(3, in_forward=True).model)
    net = Net(3, criterion=False)
    net.criterion = trainonce.CompositeLoss(["fit", "bend", "far", "size"], lr="model").double()
    states.set_model_state_dict(fully_shard(net), saved)
    return values(net.criterion.exponents)


def test_sharded_checkpoint_maps_reordered_names(ranks: TwoRanks) -> None:
    start = values(new_criterion(3).exponents)
    assert ranks(load_reordered) == [[start[i] for i in (2, 0, 1)]] * 2


def save_own_shards() -> dict[str, list[float]]:
    from torch.distributed.checkpoint import state_dict as states

    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = states.get_model_state_dict(fsdp_own(3).criterion, options=options)
    return {key: value.tolist() for key, value in full.items()}


def test_checkpoint_of_a_criterion_sharded_by_itself(ranks: TwoRanks) -> None:
    """fully_shard puts another class in its place; the checkpoint must not tell."""
    full = ranks(save_own_shards)[0]
    criterion = trainonce.CompositeLoss(TERMS, lr="model").double()
    names = torch.tensor(full["_extra_state"], dtype=torch.uint8)
    numbers = double(full["exponents"])
    criterion.load_state_dict({"exponents": numbers, "_extra_state": names})
    assert values(criterion.exponents) == values(new_criterion(3).exponents)


def record_on_first_rank(placement: str) -> tuple[list[float], int]:
    placed = place(placement, 3)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1)
    history = trainonce.History() if dist.get_rank() == 0 else None
    trainonce.attach(optimizer, placed.criterion, history=history)
    for step in range(3):
        backward_in_parts(placed, step, Setting())
        optimizer.step()
        optimizer.zero_grad()
    return values(placed.criterion.exponents), 0 if history is None else len(history)


@pytest.mark.parametrize("placement", ["ddp-outside", "fsdp-sharded-in_forward"])
def test_history_on_the_first_rank_alone(ranks: TwoRanks, placement: str) -> None:
    """No collective may depend on whether a rank records."""
    found = ranks(record_on_first_rank, placement)
    assert found[0][0] == found[1][0]
    assert [rows for _, rows in found] == [3, 0]


def save_before_the_first_step() -> tuple[int, list[float]]:
    """torch.distributed.checkpoint makes the optimizer's state by a step with zero gradients and a rate of 0."""
    from torch.distributed.checkpoint import state_dict as states

    placed, history = fsdp_inside(3, in_forward=True), trainonce.History()
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=0.9)
    trainonce.attach(optimizer, placed.criterion, history=history)
    states.get_optimizer_state_dict(placed.model, optimizer)
    return len(history), values(placed.criterion.exponents)


def test_checkpointing_is_no_step(ranks: TwoRanks) -> None:
    assert ranks(save_before_the_first_step) == [(0, values(new_criterion(3).exponents))] * 2

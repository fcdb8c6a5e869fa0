"""RigL: its plan, its update by hand, the drop fractions, and what becomes of momentum."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hypersparse import Mask, PrunableWeights, RigL, TrainingState, data
from hypersparse.errors import LoopError, OptionError
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import Training
from hypersparse.training.machine import Machine
from tests.methods.tiny import attached, epochs_of, train_epoch
from tests.training.small import small


def test_the_papers_plan() -> None:
    plan = RigL(sparsity=0.98).plan(160)
    assert [(phase.name, phase.epochs) for phase in plan] == [("search", 270), ("settle", 90), ("fine-tune", 160)]
    assert [phase.lr.held for phase in plan] == [True, True, False]
    assert [phase.reset_optimizer for phase in plan] == [False, False, True]
    assert [phase.on_step is not None for phase in plan] == [True, False, False]
    assert plan[0].on_step is not None
    assert plan[0].on_step.every == 100
    assert plan[0].on_step.replaces_step
    assert sum(phase.epochs for phase in RigL(search=1.2).plan(300)) == 660


def layer_state() -> TrainingState:
    layer = nn.Linear(10, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0, momentum=0.5)
    state = TrainingState(layer, optimizer, PrunableWeights(layer))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[5.0, -4.0, 3.0, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))
    state.weights.set_mask_(Mask({"weight": torch.tensor([[True] * 5 + [False] * 5])}))
    return state


def test_the_update_by_hand() -> None:
    state = layer_state()
    weight = state.weights["weight"]
    weight.grad = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.5, 0.1, -0.9, 0.7, 0.2, 0.3]])
    state.optimizer.state[weight]["momentum_buffer"] = torch.ones_like(weight)
    RigL(drop_fraction=0.4).move(state, epochs=4)
    # Epoch 0: 0.4 of five are two. -2 and 1 go; -0.9 and 0.7 are the largest gradients.
    assert weight.tolist() == [[5.0, -4.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    assert state.weights.mask is not None
    assert state.weights.mask["weight"].int().tolist() == [[1, 1, 1, 0, 0, 0, 1, 1, 0, 0]]
    momentum: Tensor = state.optimizer.state[weight]["momentum_buffer"]
    assert momentum.tolist() == [[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]]
    assert state.log == {"moved_fraction": 0.4}
    # Epoch 2 of 4: 0.2 of five are one. Of the two that just grew, both 0.0, the first stays; the dropped one may
    # return, and does.
    state.epoch = 2
    weight.grad = torch.tensor([[0.0, 0.0, 0.0, 0.1, 0.1, 0.1, 0.1, 0.8, 0.2, 0.3]])
    RigL(drop_fraction=0.4).move(state, epochs=4)
    assert state.weights.mask["weight"].int().tolist() == [[1, 1, 1, 0, 0, 0, 1, 1, 0, 0]]
    assert state.log == {"moved_fraction": pytest.approx(0.2)}


def test_the_drop_fraction_falls_along_a_cosine() -> None:
    state, found = layer_state(), []
    for epoch in range(8):
        state.epoch = epoch
        state.weights["weight"].grad = torch.ones(1, 10)
        RigL().move(state, epochs=8)
        found.append(state.log["moved_fraction"])
    assert found == pytest.approx([0.15 * (1 + math.cos(math.pi * epoch / 8)) for epoch in range(8)])
    assert found[0] == 0.3
    assert found[4] == pytest.approx(0.15)


def test_where_steps_are_counted_the_cosine_goes_by_them() -> None:
    method = RigL(sparsity=0.5, distribution="erk", search=1.0, update_until=1.0, update_every=2, drop_fraction=0.4)
    sparsifier = attached(method, epochs=1, steps_per_epoch=9)
    moved = []
    while not sparsifier.done:
        train_epoch(sparsifier, lambda: moved.append(sparsifier.state.log.get("moved_fraction")))
    # After the steps 2, 4, 6 and 8 of 9 that search; the other 9 fine-tune.
    assert moved[1:8:2] == pytest.approx([0.2 * (1 + math.cos(math.pi * step / 9)) for step in (1, 3, 5, 7)])


def test_the_cosine_ends_where_the_mask_begins_to_stay() -> None:
    sparsifier = attached(RigL(sparsity=0.25, update_every=1, search=2.0, update_until=0.5), epochs=4)
    found = [sparsifier.state.log["moved_fraction"] for _ in epochs_of(sparsifier) if sparsifier.phase.name == "search"]
    assert found == pytest.approx([0.15 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(4)])


@pytest.mark.parametrize("distribution", ["uniform", "erk", "literal"])
def test_counts_by_layer_never_change_and_the_mask_stays_in_the_end(distribution: str) -> None:
    method = RigL(sparsity=0.25, distribution=distribution, update_every=2, search=2.0, update_until=0.5)
    sparsifier = attached(method, epochs=2)
    steps: list[tuple[str, Mask]] = []

    def look() -> None:
        assert sparsifier.mask is not None
        steps.append((sparsifier.phase.name, sparsifier.mask))

    for _ in epochs_of(sparsifier, look):
        pass
    counts = steps[0][1].kept_by_layer()
    expected = {"uniform": (72, 9), "literal": (72, 27), "erk": (45, 36)}
    assert tuple(counts.values()) == expected[distribution]
    assert all(mask.kept_by_layer() == counts for _, mask in steps)
    searching = [mask for name, mask in steps if name == "search"]
    if distribution == "uniform":
        changed = [later != earlier for earlier, later in pairwise(searching)]
        assert changed == [True, False, True, False, True]  # in the steps 2, 4 and 6
    assert all(mask == searching[-1] for name, mask in steps if name != "search")


def three_layers() -> PrunableWeights:
    return PrunableWeights(nn.Sequential(nn.Linear(4, 5), nn.Linear(20, 10), nn.Linear(10, 10)))


def test_budgets_by_layer() -> None:
    weights = three_layers()  # 20, 200 and 100
    assert RigL(sparsity=0.75).budget(weights) == {"0.weight": 20, "1.weight": 40, "2.weight": 20}
    assert RigL(sparsity=0.75, distribution="literal").budget(weights) == {
        "0.weight": 20,
        "1.weight": 50,
        "2.weight": 25,
    }
    erk = RigL(sparsity=0.75, distribution="erk").budget(weights)
    assert sum(erk.values()) == 80
    assert erk["2.weight"] / 100 > erk["1.weight"] / 200


def test_of_a_single_layer_the_first_is_not_kept_whole() -> None:
    weights = PrunableWeights(nn.Linear(10, 10))
    assert RigL(sparsity=0.9).budget(weights) == RigL(sparsity=0.9, distribution="literal").budget(weights)
    assert RigL(sparsity=0.9).budget(weights) == {"weight": 10}


def test_a_budget_smaller_than_the_first_layer_is_said_when_attached() -> None:
    with pytest.raises(OptionError, match="stay dense and have 72 weights, but only 11 can be kept"):
        attached(RigL(sparsity=0.9), epochs=1)


def test_a_step_without_gradients_is_an_error() -> None:
    sparsifier = attached(RigL(sparsity=0.25, update_every=1), epochs=1)
    sparsifier.begin_epoch()
    with pytest.raises(LoopError, match=r"call `backward\(\)` before `optimizer\.step\(\)`"):
        sparsifier.state.optimizer.step()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_step_that_a_grad_scaler_leaves_out_moves_nothing(value: float) -> None:
    state = layer_state()
    weight, mask = state.weights["weight"], state.weights.mask
    weight.grad = torch.tensor([[0.0] * 9 + [value]])
    RigL(drop_fraction=0.4).move(state, epochs=4)
    assert state.weights.mask is mask
    assert weight.tolist() == [[5.0, -4.0, 3.0, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]


def test_gradients_of_zero_are_said_and_move_nothing() -> None:
    state = layer_state()
    mask = state.weights.mask
    state.weights["weight"].grad = torch.zeros(1, 10)
    with pytest.warns(UserWarning, match=r"all gradients zero and moved nothing: call `backward\(\)` before"):
        RigL(drop_fraction=0.4).move(state, epochs=4)
    assert state.weights.mask is mask


def our_own_loop(options: dict[str, Any], folder: Path) -> Training:
    recipe = small(method={"name": "rigl", **options})
    dataset = data.load(recipe.data.name, options=recipe.data.options)
    return Training(recipe, 0, Machine(device="cpu"), torch.device("cpu"), dataset, RunFolder(folder))


def test_moves_in_every_step_leave_the_optimizer_its_own(tmp_path: Path) -> None:
    assert [phase.on_step.replaces_step for phase in RigL(update_every=1).plan(4) if phase.on_step] == [False]
    training = our_own_loop({"sparsity": 0.8, "update_every": 1}, tmp_path)
    before = training.model.get_parameter("linear.bias").detach().clone()
    training.begin_epoch()
    training.step_of_phase()(0)
    assert not torch.equal(training.model.get_parameter("linear.bias"), before)


def test_in_our_own_loop_a_move_replaces_the_optimizers_step(tmp_path: Path) -> None:
    training = our_own_loop({"sparsity": 0.8, "update_every": 3, "search": 2.0}, tmp_path)
    weights = training.sparsifier.weights
    training.begin_epoch()
    step = training.step_of_phase()
    still = []
    for number in range(4):
        before, mask = weights.vector().detach().clone(), weights.mask
        bias = training.model.get_parameter("linear.bias").detach().clone()
        step(number)
        assert mask is not None
        assert weights.mask is not None
        staying = (mask & weights.mask).vector()
        same = torch.equal(before[staying], weights.vector().detach()[staying])
        still.append((same, torch.equal(bias, training.model.get_parameter("linear.bias")), weights.mask != mask))
    assert still == [(False, False, False), (False, False, False), (True, True, True), (False, False, False)]

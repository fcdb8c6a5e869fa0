"""The learning rate across phases: the schedule's, and nobody else's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler

from hypersparse import Dense, Phase, PhaseLR, Sparsifier, schedules
from hypersparse.errors import LoopError
from tests.plain_loop import attached, batches, cross_entropy, epochs_of, network, sgd, train_epoch, train_step


def rates(sparsifier: Sparsifier) -> list[tuple[str, list[float]]]:
    found = []
    for _ in sparsifier.epochs():
        groups = sparsifier.state.optimizer.param_groups
        found.append((sparsifier.phase.name, [round(float(group["lr"]), 8) for group in groups]))
        train_epoch(sparsifier)
    return found


def test_the_rate_is_held_until_the_fine_tuning_and_then_follows_the_schedule() -> None:
    model = network()
    groups = [{"params": model.first.parameters(), "lr": 0.04}, {"params": model.last.parameters(), "lr": 0.02}]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    found = rates(attached(model, optimizer, epochs=4, lr=schedules.multistep()))
    assert all(lrs == [0.04, 0.02] for phase, lrs in found if phase != "fine-tune")
    assert [lrs for phase, lrs in found if phase == "fine-tune"] == [
        [0.04, 0.02],
        [0.04, 0.02],
        [0.004, 0.002],
        [0.0004, 0.0002],
    ]


def test_a_schedule_restarts_in_every_phase() -> None:
    model = network()
    plan = [Phase("one", epochs=2), Phase("two", epochs=4), Phase("held", epochs=1, lr=PhaseLR(held=True))]
    sparsifier = Sparsifier(model, sgd(model, lr=1.0), plan, lr=lambda progress: 1 - progress)
    assert [lrs for _, lrs in rates(sparsifier)] == [[1.0], [0.5], [1.0], [0.75], [0.5], [0.25], [1.0]]


def test_without_a_schedule_the_rate_stays() -> None:
    assert {lrs[0] for _, lrs in rates(attached())} == {0.05}


def test_a_rate_in_a_tensor_is_filled_in_place() -> None:
    model = network()
    rate = torch.tensor(0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    sparsifier = attached(model, optimizer, Dense(), epochs=2, lr=schedules.multistep((0.5,)))
    assert [lrs for _, lrs in rates(sparsifier)] == [[0.05], [0.005]]
    assert optimizer.param_groups[0]["lr"] is rate
    assert sparsifier.lr == pytest.approx(0.005)


def test_a_group_added_later_follows_the_schedule_too() -> None:
    model = network()
    sparsifier = attached(model, sgd(model), Dense(), epochs=2, lr=schedules.multistep((0.5,)))
    extra = nn.Parameter(torch.ones(1))
    for _ in sparsifier.epochs():
        if sparsifier.total_epoch == 0:
            sparsifier.state.optimizer.add_param_group({"params": [extra], "lr": 0.3})
        train_epoch(sparsifier)
    assert [round(group["lr"], 8) for group in sparsifier.state.optimizer.param_groups] == [0.005, 0.03]


SAYS_WHAT_TO_PASS = r"pass `attach\(\.\.\., lr=schedule\)`.*`hypersparse\.schedules\.cosine`"
FOREIGN: list[Callable[[Optimizer], Any]] = [
    lambda optimizer: lr_scheduler.StepLR(optimizer, step_size=30),
    lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=10),
    lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=30, cycle_momentum=False),
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_schedule_before_attaching_is_an_error(foreign: Callable[[Optimizer], Any]) -> None:
    model = network()
    optimizer = sgd(model)
    foreign(optimizer)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        attached(model, optimizer, lr=schedules.constant)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_schedule_after_attaching_is_an_error_in_the_first_epoch(
    foreign: Callable[[Optimizer], Any],
) -> None:
    before_the_loop = attached(lr=schedules.constant)
    foreign(before_the_loop.state.optimizer)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        next(epochs_of(before_the_loop))
    inside_the_loop = attached(lr=schedules.constant)
    trained = epochs_of(inside_the_loop)
    assert next(trained) == "pre-train"
    foreign(inside_the_loop.state.optimizer)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        train_step(inside_the_loop, *batches()[0])
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        next(trained)
    assert inside_the_loop.total_epoch == 0


def test_a_schedule_that_watches_the_loss_is_an_error_once_it_acts() -> None:
    sparsifier = attached(method=Dense(), epochs=9, lr=schedules.constant)
    scheduler = lr_scheduler.ReduceLROnPlateau(sparsifier.state.optimizer, patience=0)
    trained = epochs_of(sparsifier)
    for loss in (1.0, 2.0):
        next(trained)
        scheduler.step(loss)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        next(trained)


def test_a_rate_set_by_hand_is_an_error() -> None:
    sparsifier = attached(lr=schedules.constant)
    trained = epochs_of(sparsifier)
    next(trained)
    sparsifier.state.optimizer.param_groups[0]["lr"] *= 0.1
    with pytest.raises(LoopError, match=r"The learning rate was 0\.05 and is now 0\.005\. .*" + SAYS_WHAT_TO_PASS):
        next(trained)


@pytest.mark.parametrize("every_step", [False, True])
def test_without_a_schedule_the_rate_is_the_loops(every_step: bool) -> None:
    found = []
    for watched in (False, True):
        model = network()
        optimizer = sgd(model)
        sparsifier = attached(model, optimizer, Dense(), epochs=3) if watched else None
        scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
        rates = []
        for _ in sparsifier.epochs() if sparsifier else range(3):
            for inputs, labels in batches():
                optimizer.zero_grad()
                cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                rates.append(optimizer.param_groups[0]["lr"])
                if every_step:
                    scheduler.step()
            if not every_step:
                scheduler.step()
        found.append((rates, model.first.weight.detach().clone()))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_a_phase_may_be_a_part_of_a_schedule() -> None:
    model = network()
    phase = Phase("rewound", epochs=2, lr=PhaseLR(schedule_epochs=4, schedule_start=2))
    sparsifier = Sparsifier(model, sgd(model), [phase], lr=lambda progress: 1 - progress)
    first = sparsifier.lr
    assert [rate for _, found in rates(sparsifier) for rate in found] == pytest.approx([0.5 * first, 0.25 * first])

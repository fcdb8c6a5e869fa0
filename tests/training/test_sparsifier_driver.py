"""What our own steps do with a sparsifier that a user's loop does not."""

from collections.abc import Sequence
from typing import Any

import torch

from hypersparse import EverySteps, Phase, Sparsifier, Task
from hypersparse.loop_errors import LoopCalls
from hypersparse.methods.phase_plan import plan_of
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.sparsifier_driver import SparsifierDriver
from tests.plain_loop import batches, cross_entropy, network, sgd, short_art


def driver_of(plan: Sequence[Phase], **options: Any) -> SparsifierDriver:
    model = network()
    sparsifier = Sparsifier(model, sgd(model), plan, task=Task(cross_entropy, batches()), penalty=None, **options)
    return SparsifierDriver(sparsifier, FlatMemory(sparsifier.weights))


def step(driver: SparsifierDriver) -> None:
    inputs, labels = batches()[0]
    state = driver.sparsifier.state
    cross_entropy(state.model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    driver.add_penalty_gradient_()
    state.optimizer.step()
    driver.finish_step(torch.ones(len(labels)), len(labels))


def test_a_repeated_step_counts_like_one_that_was_made() -> None:
    made, repeated = (driver_of(plan_of(short_art(), epochs=1)) for _ in range(2))
    for driver in (made, repeated):
        driver.sparsifier.begin_epoch()
    step(made)
    repeated.repeat_step(16)
    assert made.sparsifier.calls == repeated.sparsifier.calls == LoopCalls(steps=1)
    assert made.sparsifier.state.step == repeated.sparsifier.state.step == 1
    assert made.sparsifier.state.observed.count == repeated.sparsifier.state.observed.count == 16


def test_a_loop_of_our_own_adds_the_penalty_once() -> None:
    driver = driver_of(plan_of(short_art(pretrain_epochs=0, penalty="l1", strength=0.5), epochs=1))
    assert driver.sparsifier.begin_epoch()
    driver.add_penalty_gradient_()
    driver.sparsifier.state.optimizer.step()
    grad = driver.sparsifier.weights["last.weight"].grad
    assert grad is not None
    assert grad.abs().tolist() == [[0.5] * 12] * 3
    assert driver.sparsifier.calls == LoopCalls()  # it counts its steps itself
    driver.sparsifier.finish_step()
    driver.sparsifier.finish_epoch()
    assert driver.sparsifier.total_epoch == 1


def test_no_method_acts_in_a_warm_up() -> None:
    calls: list[int] = []
    driver = driver_of([Phase("first", epochs=1, on_step=EverySteps(lambda state: calls.append(state.step), 2))])
    sparsifier = driver.sparsifier
    for _ in sparsifier.epochs():
        with driver.warm_up():
            for _ in range(3):
                assert not driver.method_acts
                step(driver)
        assert calls == []
        assert (sparsifier.calls, sparsifier.state.step, sparsifier.state.observed.count) == (LoopCalls(), 0, 0)
        for _ in range(3):
            step(driver)
    assert calls == [1]

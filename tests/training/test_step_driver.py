"""What our own steps do with a sparsifier that a user's loop does not."""

import torch

from hypersparse import EverySteps, Phase, Sparsifier
from hypersparse.loop_errors import LoopCalls
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.step_driver import StepDriver
from tests.plain_loop import attached, batches, cross_entropy, network, sgd, short_art, train_step


def driver_of(sparsifier: Sparsifier) -> StepDriver:
    return StepDriver(sparsifier, FlatMemory(sparsifier.weights))


def step(driver: StepDriver) -> None:
    inputs, labels = batches()[0]
    state = driver.sparsifier.state
    cross_entropy(state.model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    driver.add_penalty_gradient_()
    state.optimizer.step()
    driver.finish_step(torch.ones(len(labels)), len(labels))


def test_a_repeated_step_counts_like_one_that_was_made() -> None:
    made, repeated = (driver_of(attached(epochs=1)) for _ in range(2))
    for driver in (made, repeated):
        driver.sparsifier.begin_epoch()
    step(made)
    repeated.repeat_step(16)
    repeated.sparsifier.calls.optimizer_steps += 1  # which its hook does not see
    assert made.sparsifier.calls == repeated.sparsifier.calls == LoopCalls(1, 1, 1)
    assert made.sparsifier.state.step == repeated.sparsifier.state.step == 1
    assert made.sparsifier.state.observed.count == repeated.sparsifier.state.observed.count == 16


def test_the_gradient_added_later_counts_as_the_penalty() -> None:
    sparsifier = attached(epochs=1)
    sparsifier.begin_epoch()
    driver_of(sparsifier).add_penalty_gradient_()
    sparsifier.step()
    sparsifier.finish_epoch()
    assert sparsifier.total_epoch == 1


def test_a_gradient_added_later_counts_once_whatever_the_accumulation() -> None:
    grads = []
    for parts in (1, 4):
        sparsifier = attached(method=short_art(pretrain_epochs=0, penalty="l1", strength=0.5), accumulation_steps=parts)
        assert sparsifier.begin_epoch()
        driver_of(sparsifier).add_penalty_gradient_()
        grads.append(sparsifier.weights["last.weight"].grad)
    assert grads[0] is not None
    assert grads[0].abs().tolist() == [[0.5] * 12] * 3
    assert torch.equal(grads[0], grads[1])  # type: ignore[arg-type]


def test_no_method_acts_in_a_warm_up() -> None:
    calls: list[int] = []
    model = network()
    plan = [Phase("first", epochs=1, on_step=EverySteps(lambda state: calls.append(state.step), 2))]
    sparsifier = Sparsifier(model, sgd(model), plan)
    driver = driver_of(sparsifier)
    for _ in sparsifier.epochs():
        with driver.warm_up():
            for _ in range(3):
                assert not driver.method_acts
                step(driver)
        assert calls == []
        assert (sparsifier.calls, sparsifier.state.step, sparsifier.state.observed.count) == (LoopCalls(), 0, 0)
        for _ in range(3):
            train_step(sparsifier, *batches()[0])
    assert calls == [1]

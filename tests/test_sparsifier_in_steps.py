"""A plan whose epochs are counted in optimizer steps: endless loaders, bounds in steps, and how a plan may be cut."""

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from hypersparse import GMP, RigL, Sparsifier, Task
from hypersparse.errors import OptionError
from tests.plain_loop import (
    attached,
    batches,
    cross_entropy,
    equal_tensors,
    is_sparse,
    network,
    sgd,
    short_art,
    train_epoch,
    train_step,
)


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    """The same samples again and again, as a stream gives them."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, labels in cycle(batches()):
            yield from zip(inputs, labels, strict=True)


def steps(sparsifier: Sparsifier, count: int, *, first: int = 0) -> None:
    sparsifier.state.model.train()
    for number in range(first, first + count):
        train_step(sparsifier, *batches()[number % 3])


def test_an_endless_loader_until_the_plan_is_done() -> None:
    finished: list[Sparsifier] = []
    loader = DataLoader(Endless(), batch_size=16)
    sparsifier = attached(method=GMP(sparsity=0.8), epochs=4, steps_per_epoch=5, on_done=finished.append)
    count = 0
    for inputs, labels in loader:
        train_step(sparsifier, inputs, labels)
        count += 1
        if sparsifier.done:
            break
    assert count == 4 * 5
    assert finished == [sparsifier]
    assert is_sparse(sparsifier)
    steps(sparsifier, 3)
    assert is_sparse(sparsifier), "the mask holds after the plan too"


def test_epochs_of_steps_need_not_be_epochs_of_the_loader() -> None:
    sparsifier = attached(method=GMP(sparsity=0.8), epochs=5, steps_per_epoch=2)
    seen = []
    for epoch in sparsifier.epochs():
        seen.append(epoch)
        train_epoch(sparsifier)  # three steps
    assert seen == [0, 1, 3, 4]
    assert is_sparse(sparsifier)


def test_art_prunes_at_the_latest_when_the_rest_still_fits() -> None:
    never = short_art(pretrain_epochs=1, strength=1e-9, sparsity=0.95)  # pruning is never free
    sparsifier = attached(method=never, epochs=3, steps_per_epoch=2, max_steps=17)
    assert [(phase.name, phase.epochs) for phase in sparsifier.plan] == [
        ("pre-train", 1),
        ("regularize", 4),
        ("fine-tune", 3),
    ]
    steps(sparsifier, 9)  # 17 steps, less three epochs of two, are enough for five epochs
    assert sparsifier.mask is None
    with pytest.warns(UserWarning, match="Pruning still cost accuracy after 4 regularized epochs"):
        steps(sparsifier, 1)
    assert sparsifier.is_sparse
    steps(sparsifier, 6)
    assert sparsifier.done


def test_a_plan_of_fewer_steps_than_an_epoch() -> None:
    method = GMP(sparsity=0.8, start=0.0, update_every=1)
    sparsifier = attached(method=method, epochs=1, steps_per_epoch=10_000, max_steps=7)
    steps(sparsifier, 6)
    assert not sparsifier.done
    steps(sparsifier, 1)
    assert sparsifier.done
    assert is_sparse(sparsifier)


def test_a_budget_that_is_too_small_is_said() -> None:
    with pytest.raises(
        OptionError, match=r"enough for 1 epoch; this plan needs at least 5 \(pre-train 2, regularize 1"
    ):
        attached(epochs=2, steps_per_epoch=10, max_steps=19)


METHODS: dict[str, Callable[[], Any]] = {
    "art": lambda: short_art(pretrain_epochs=1, max_regularized_epochs=1),
    "gmp": lambda: GMP(sparsity=0.8, update_every=7),
    "rigl": lambda: RigL(sparsity=0.5, distribution="erk", search=1.0, update_every=7),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("stop", [3, 103, 250])
@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_a_training_that_stopped_in_the_middle_of_an_epoch_goes_on_with_the_next_step(name: str, stop: int) -> None:
    def fresh(seed: int) -> Sparsifier:
        return attached(network(seed), method=METHODS[name](), epochs=3, steps_per_epoch=100)

    whole, first, second = fresh(0), fresh(0), fresh(9)
    steps(first, stop)
    second.state.model.load_state_dict(first.state.model.state_dict())
    second.state.optimizer.load_state_dict(first.state.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert (second.total_epoch, second.calls.steps) == divmod(stop, 100)
    steps(whole, 320)
    steps(second, 320 - stop, first=stop)
    assert second.total_epoch == whole.total_epoch >= 3
    assert equal_tensors(second.state.model.state_dict(), whole.state.model.state_dict())
    assert second.mask == whole.mask
    assert whole.mask is not None


def train_until(sparsifier: Sparsifier, last: int) -> None:
    for epoch in sparsifier.epochs():
        train_epoch(sparsifier)
        if epoch == last:
            break


def test_a_loop_that_is_left_says_in_which_phase() -> None:
    dense = r"ended in phase regularize, epoch 1 of at most 30, before its plan: the network does not have its sparsity"
    with pytest.warns(UserWarning, match=dense):
        train_until(attached(), 2)


def test_a_loop_that_is_left_when_the_network_is_sparse_says_only_that() -> None:
    sparsifier = attached(method=GMP(sparsity=0.8), epochs=4)
    with pytest.warns(UserWarning, match=r"ended in phase train, epoch 3 of at most 4, before its plan\. Train to the"):
        train_until(sparsifier, 2)
    assert sparsifier.is_sparse


def test_detaching_before_the_end_says_so_too(recwarn: pytest.WarningsRecorder) -> None:
    sparsifier = attached(steps_per_epoch=3)
    sparsifier.detach()
    assert not recwarn.list, "nothing was trained"
    sparsifier = attached(steps_per_epoch=3)
    train_epoch(sparsifier)
    with pytest.warns(UserWarning, match=r"ended in phase pre-train, epoch 1 of at most 2"):
        sparsifier.detach()


def test_a_plan_that_was_done_says_nothing(recwarn: pytest.WarningsRecorder) -> None:
    sparsifier = attached(method=GMP(sparsity=0.8), epochs=4)
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
    sparsifier.detach()
    assert not recwarn.list


@pytest.mark.parametrize("every_step", [True, False])
def test_a_schedule_of_ones_own_for_every_step(every_step: bool) -> None:
    model = network()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=12 if every_step else 4)
    sparsifier = attached(model, optimizer, GMP(sparsity=0.8), epochs=4, steps_per_epoch=3)
    rates = []
    for _ in range(4):
        for inputs, labels in batches():
            train_step(sparsifier, inputs, labels)
            rates.append(sparsifier.lr)
            if every_step:
                scheduler.step()
        if not every_step:
            scheduler.step()
    assert sparsifier.done
    assert is_sparse(sparsifier)
    assert len(set(rates)) == (12 if every_step else 4)
    assert max(rates) > 3 * rates[0]


def test_a_tasks_loader_may_be_another_than_the_loops() -> None:
    sparsifier = attached(epochs=1, steps_per_epoch=3, task=Task(cross_entropy, batches()[:1]))
    while not sparsifier.done:
        train_epoch(sparsifier)
    assert is_sparse(sparsifier)


@pytest.mark.parametrize(("before", "after", "count"), [(100, 50, 100), (100, 50, 3), (100, None, 3), (None, 100, 2)])
def test_a_state_with_epochs_of_another_length_is_an_error(before: int | None, after: int | None, count: int) -> None:
    first, second = (attached(method=GMP(sparsity=0.8), epochs=4, steps_per_epoch=length) for length in (before, after))
    if before is None:
        first.begin_epoch()
    steps(first, count)
    with pytest.raises(
        OptionError, match=rf"`steps_per_epoch={before}`, and this plan has {after}; attach with {before}"
    ):
        second.load_state_dict(first.state_dict())


def test_between_epochs_a_loop_may_begin_to_count_steps() -> None:
    first, second = (attached(method=GMP(sparsity=0.8), epochs=4, steps_per_epoch=length) for length in (None, 3))
    first.begin_epoch()
    steps(first, 3)
    first.finish_epoch()
    second.load_state_dict(first.state_dict())
    steps(second, 9)
    assert second.done

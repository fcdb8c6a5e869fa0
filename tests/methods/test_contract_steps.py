"""What every method promises of its steps: plain SGD where all is kept, and no waiting for the device."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import hypersparse
from hypersparse import Mask, Phase, Sparsifier, Task, TrainingState, methods
from tests.methods.contract import PRUNING, Run, same, sgd


def plain_sgd(run: Run, epochs: int) -> nn.Module:
    """Ordinary training of the run's network, without any of our code."""
    model = copy.deepcopy(run.model)
    optimizer = sgd(model)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = 0.05 * hypersparse.schedules.cosine(epoch / epochs)
        for inputs, labels in run.loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model


def test_dense_is_plain_training_bit_for_bit() -> None:
    expected = plain_sgd(Run("dense", sgd), 3)
    run = Run("dense", sgd)
    run.train()
    assert same(dict(run.model.state_dict()), dict(expected.state_dict()))


def test_a_mask_that_keeps_all_is_plain_training_bit_for_bit() -> None:
    def keep_all(state: TrainingState) -> None:
        state.weights.set_mask_(Mask.all_kept(state.weights))

    expected = plain_sgd(Run("dense", sgd), 3)
    run = Run("dense", sgd)
    plan = [Phase("masked", epochs=3, on_enter=keep_all, reset_optimizer=True)]
    task = Task(nn.functional.cross_entropy, run.loader)
    run.sparsifier.detach()
    run.sparsifier = Sparsifier(run.model, run.optimizer, plan, task=task, lr=hypersparse.schedules.cosine)
    run.train()
    assert run.sparsifier.mask is not None
    assert same(dict(run.model.state_dict()), dict(expected.state_dict()))


@pytest.mark.parametrize("name", PRUNING)
def test_steps_with_everything_kept_are_plain_sgd_bit_for_bit(name: str) -> None:
    """At sparsity 0, every step that neither adjusts nor has a penalty is the one SGD makes alone."""
    run = Run(name, sgd, sparsity=0.0)
    compared = 0
    for _ in run.sparsifier.epochs():
        for inputs, labels in run.loader:
            alone = copy.deepcopy((run.model, run.optimizer))
            adjusts = run.sparsifier.phase.acts_in(run.sparsifier.state.step)
            loss = nn.functional.cross_entropy(run.model(inputs), labels)
            run.optimizer.zero_grad()
            loss.backward()
            run.optimizer.step()
            if run.sparsifier.mask is None or adjusts or run.sparsifier.phase.rules.penalty is not None:
                continue
            assert run.sparsifier.mask.kept == run.sparsifier.weights.total
            model, optimizer = alone
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            assert same(dict(run.model.state_dict()), dict(model.state_dict()))
            compared += 1
    assert compared >= 6


class NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails where the host would have to wait for a device: a number or a size that depends on values."""

    WAITING = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "unique_dim", "_unique2")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._overloadpacket.__name__
        assert name not in self.WAITING, f"{name} waits for the device"
        if name in ("index", "index_put", "index_put_"):
            indices = [index for index in tree_leaves(args[1]) if isinstance(index, Tensor)]
            assert all(index.dtype != torch.bool for index in indices), "a boolean index waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", methods.names())
def test_its_steps_do_not_wait_for_the_device(name: str) -> None:
    run = Run(name, sgd)
    for _ in run.sparsifier.epochs():
        for inputs, labels in run.loader:
            outputs = run.model(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            run.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if run.sparsifier.phase.acts_in(run.sparsifier.state.step):
                run.optimizer.step()
                continue
            with NoWaiting():  # type: ignore[no-untyped-call]
                run.optimizer.step()
                run.sparsifier.observe(outputs, labels)


def test_the_test_sees_waiting() -> None:
    values = torch.arange(3.0)
    for wait in (values[0].item, values.nonzero, lambda: bool(values[0]), lambda: values[values > 1]):
        with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():  # type: ignore[no-untyped-call]
            wait()

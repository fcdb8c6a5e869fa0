"""Which optimizer the hooks are on, and when a network counts as sparse."""

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

import hypersparse
from hypersparse import GMP, LoopError
from hypersparse.step_hooks import stepping


class Wrapper(torch.optim.Optimizer):
    """An optimizer in name only, as Accelerate's: without `super().__init__()`, and so without hooks."""

    def __init__(self, optimizer: object) -> None:
        self.optimizer = optimizer


def test_a_wrapper_around_an_optimizer_is_taken_off() -> None:
    optimizer = torch.optim.SGD(nn.Linear(8, 2).parameters(), lr=0.1)
    assert stepping(optimizer) is optimizer
    assert stepping(Wrapper(Wrapper(optimizer))) is optimizer
    with pytest.raises(LoopError, match="Wrapper has no step hooks"):
        stepping(Wrapper(None))


def test_a_network_is_sparse_from_the_step_on_with_which_the_plans_sparsity_is_reached() -> None:
    model = nn.Linear(8, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = hypersparse.attach(model, optimizer, GMP(sparsity=0.5), epochs=4, steps_per_epoch=2)
    seen = []
    for _ in range(8):
        model(torch.ones(8)).sum().backward()
        optimizer.step()
        seen.append((sparsifier.is_sparse, int((model.weight == 0).sum()) == 40))
    assert not seen[0][0]
    assert seen[-1][0]
    assert all(sparse == half for sparse, half in seen)


def test_a_step_that_only_makes_an_optimizers_state_is_not_counted() -> None:
    model = nn.Linear(8, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = hypersparse.attach(model, optimizer, GMP(sparsity=0.5), epochs=4, steps_per_epoch=2)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # which wraps `step`
    get_optimizer_state_dict(model, optimizer)
    assert optimizer.state
    assert not sparsifier.is_open
    assert sparsifier.state.step == 0

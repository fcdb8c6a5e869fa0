"""Dropped weights are exactly 0.0, whatever the optimizer keeps beside them, or an error says why not."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from hypersparse import GMP, IMP, LoopError, Method, ModelError, PowerProp, Sparsifier, TopKAST
from tests.plain_loop import attached, batches, cross_entropy, is_sparse, network, short_art, train_epoch

STUB = Path(__file__).parent / "integrations" / "torchvision_stub"


class Lookahead(SGD):
    """SGD that moves slow weights half of the way after every second step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        slow = {}
        for group in self.param_groups:
            group["counted"] = group.get("counted", 0) + 1
            for parameter in group["params"]:
                slow[parameter] = self.state[parameter].setdefault("slow", parameter.clone())
        loss = super().step(closure)
        if self.param_groups[0]["counted"] % 2 == 0:
            for parameter, value in slow.items():
                parameter.copy_(value.lerp_(parameter, 0.5))
        return loss


class DoubleMaster(Optimizer):
    """SGD on copies in double precision, which it writes back."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    copy = self.state[parameter].setdefault("wide", parameter.double())
                    parameter.copy_(copy.sub_(parameter.grad.double(), alpha=group["lr"]))


def schedule_free(model: nn.Module) -> Any:
    return pytest.importorskip("schedulefree").AdamWScheduleFree(model.parameters(), lr=0.05)


def timm_lookahead(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> Any:
    if not importlib.util.find_spec("timm"):
        pytest.skip("timm is not installed")
    if not importlib.util.find_spec("torchvision"):
        monkeypatch.syspath_prepend(str(STUB))
    from timm.optim import Lookahead as Timms

    return Timms(SGD(model.parameters(), lr=0.1, momentum=0.9), k=2)


def train(sparsifier: Sparsifier, stepped: Any = None) -> None:
    """All epochs, the optimizer's mode switched as schedule-free ones want it."""
    optimizer: Any = stepped or sparsifier.state.optimizer
    for _ in sparsifier.epochs():
        getattr(optimizer, "train", bool)()
        sparsifier.state.model.train()
        for inputs, labels in batches():
            sparsifier.state.model.zero_grad()
            cross_entropy(sparsifier.state.model(inputs), labels).backward()
            optimizer.step()
        getattr(optimizer, "eval", bool)()
        assert not sparsifier.weights.count_nonzero_dropped().any()


def copies_are_masked(sparsifier: Sparsifier, optimizer: Any, key: str) -> bool:
    mask = sparsifier.mask
    assert mask is not None
    states = {name: optimizer.state[weight][key] for name, weight in sparsifier.weights.items()}
    return all(not state[~mask[name]].any() and bool(state[mask[name]].any()) for name, state in states.items())


@pytest.mark.parametrize("method", [short_art(), GMP(sparsity=0.8), IMP(sparsity=0.8, rounds=2)], ids=lambda m: m.name)
@pytest.mark.parametrize(("kind", "key"), [(Lookahead, "slow"), (DoubleMaster, "wide")])
def test_a_second_copy_in_the_optimizers_state_is_masked_too(kind: Any, key: str, method: Method) -> None:
    model = network()
    optimizer = kind(model.parameters(), lr=0.1)
    sparsifier = attached(model, optimizer, method, epochs=4)
    train(sparsifier)
    assert is_sparse(sparsifier)
    assert copies_are_masked(sparsifier, optimizer, key)


def test_a_copy_is_masked_at_the_end_of_a_plan_of_one_epoch() -> None:
    model = network()
    optimizer = Lookahead(model.parameters(), lr=0.1)
    sparsifier = attached(model, optimizer, GMP(sparsity=0.8, update_every=1), epochs=1, steps_per_epoch=6)
    train(sparsifier)
    assert sparsifier.done
    assert not sparsifier.is_open
    assert copies_are_masked(sparsifier, optimizer, "slow")


def test_a_schedule_free_optimizer() -> None:
    model = network()
    optimizer = schedule_free(model)
    sparsifier = attached(model, optimizer, epochs=4)
    train(sparsifier)
    assert is_sparse(sparsifier)
    assert copies_are_masked(sparsifier, optimizer, "z")
    assert optimizer.param_groups[0]["k"] == 4 * len(batches()), "its average begins again with the fine-tuning"
    assert sparsifier.state.task.score(model) > 0.9


def test_timms_lookahead(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    optimizer = timm_lookahead(model, monkeypatch)
    sparsifier = attached(model, optimizer, epochs=4)
    train(sparsifier)
    assert is_sparse(sparsifier)
    assert copies_are_masked(sparsifier, optimizer._base_optimizer, "lookahead_slow_buff")
    sys.modules.pop("torchvision", None)


@pytest.mark.parametrize("method", [TopKAST(sparsity=0.8), PowerProp(sparsity=0.8)], ids=lambda m: m.name)
def test_a_copy_and_a_method_that_changes_weights_around_the_step_are_an_error(method: Method) -> None:
    model = network()
    sparsifier = attached(model, Lookahead(model.parameters(), lr=0.1), method, epochs=4)
    with pytest.raises(LoopError, match=r"Lookahead keeps a copy of the weights \(`slow`\)"):
        train(sparsifier)


def test_dropped_weights_are_counted_at_the_end_of_every_epoch() -> None:
    sparsifier = attached(method=GMP(sparsity=0.8), epochs=4)
    weight = sparsifier.weights["last.weight"]
    for _ in range(3):
        sparsifier.begin_epoch()
        train_epoch(sparsifier)
        if sparsifier.total_epoch < 2:
            sparsifier.finish_epoch()
    with torch.no_grad():
        weight[weight == 0] = torch.nan
    with pytest.raises(LoopError, match=r"dropped weights are not 0\.0, the first in `last\.weight`"):
        sparsifier.finish_epoch()
    assert sparsifier.mask is not None
    sparsifier.mask.apply_to_(sparsifier.state.model)
    sparsifier.finish_epoch()


def test_another_models_optimizer_is_an_error() -> None:
    with pytest.raises(LoopError, match="holds none of the prunable weights of Network: it is another model's"):
        attached(network(), SGD(network().parameters(), lr=0.1))
    copies = [parameter.detach().clone().requires_grad_() for parameter in network().parameters()]
    with pytest.raises(LoopError, match="or holds copies"):
        attached(network(), SGD(copies, lr=0.1))


def test_an_optimizer_of_some_of_the_weights_is_taken() -> None:
    model = network()
    assert attached(model, SGD(model.last.parameters(), lr=0.1)).weights.total == 108


def test_weights_without_values_are_an_error() -> None:
    with torch.device("meta"):
        model: Any = network()
    with pytest.raises(ModelError, match=r"`first\.weight` is on the meta device"):
        attached(model, SGD(model.parameters(), lr=0.1))


def test_momentum_is_no_copy() -> None:
    model = network()
    with torch.no_grad():  # a layer whose gradient is its weight decay alone
        model.last.weight.mul_(10)
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.1)
    sparsifier = attached(model, optimizer, GMP(sparsity=0.8), epochs=4)
    train(sparsifier)
    momentum: Tensor = optimizer.state[model.first.weight]["momentum_buffer"]
    assert bool(momentum[model.first.weight == 0].any()), "it is left alone"


@pytest.mark.parametrize("attached_last", [True, False])
def test_a_second_optimizer_steps_first_or_is_said(attached_last: bool) -> None:
    model = network()
    optimizers = [SGD(model.first.parameters(), lr=0.1), SGD(model.last.parameters(), lr=0.1)]
    sparsifier = attached(model, optimizers[1], GMP(sparsity=0.8), epochs=4)

    def train_all() -> None:
        for _ in sparsifier.epochs():
            for inputs, labels in batches():
                model.zero_grad()
                cross_entropy(model(inputs), labels).backward()
                for optimizer in optimizers if attached_last else optimizers[::-1]:
                    optimizer.step()

    if attached_last:
        train_all()
        assert is_sparse(sparsifier)
    else:
        with pytest.raises(LoopError, match=r"dropped weights are not 0\.0, the first in `first\.weight`"):
            train_all()

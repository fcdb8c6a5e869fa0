"""SGD over flat memory is SGD."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hypersparse.recipe import TrainingOptions
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training import optimizers
from hypersparse.training.flat_memory import FlatMemory

OPTIONS = TrainingOptions(lr=0.1, momentum=0.9, weight_decay=1e-3)


def twin_of_the_kernel(
    weights: Tensor,
    gradients: Tensor,
    extra: Tensor | None,
    moments: Tensor,
    *,
    lr: Any,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
    copy: Tensor | None = None,
    dropped: Tensor | None = None,
) -> None:
    gradient = gradients + (0 if extra is None else extra) + weight_decay * weights
    moments.mul_(momentum).add_(gradient)
    weights -= lr * (gradient + momentum * moments if nesterov else moments)
    if dropped is not None:
        weights.masked_fill_(dropped, 0.0)
    if copy is not None:
        copy.copy_(weights)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 4))


def trained(
    model: nn.Module, device: str, *, flat: bool, steps: int, options: TrainingOptions = OPTIONS, state: Any = None
) -> tuple[dict[str, Tensor], optimizers.FlatSGD]:
    model.to(device)
    weights = PrunableWeights(model)
    memory = FlatMemory(weights)
    optimizer = optimizers.build(model.parameters(), options, torch.device(device))
    assert isinstance(optimizer, optimizers.FlatSGD)
    if flat:
        optimizer.use_flat(memory, add_penalty=True)
    if state is not None:
        optimizer.load_state_dict(copy.deepcopy(state))
    generator = torch.Generator().manual_seed(steps)
    for step in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(device)
        if flat:
            memory.copy_gradients_([weight.grad for weight in weights.values() if weight.grad is not None])
        if step != 1:  # a penalty in some steps
            memory.add_gradient_of_(lambda vector: (vector**4).sum())
        optimizer.step()
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}, optimizer


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_recipes_options_hold_for_all_parameters(name: str) -> None:
    model = network()
    options = TrainingOptions(optimizer=name, lr=0.25, momentum=0.75, weight_decay=1e-3)
    (group,) = optimizers.build(model.parameters(), options, torch.device("cpu")).param_groups
    assert {id(parameter) for parameter in group["params"]} == {id(parameter) for parameter in model.parameters()}
    assert (group["lr"], group["weight_decay"]) == (0.25, 1e-3)
    assert (group["momentum"] if name == "sgd" else group["betas"][0]) == 0.75
    assert not group.get("dampening")


def check(device: str, *, nesterov: bool) -> None:
    options = TrainingOptions(lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=nesterov)
    model = network()
    other = copy.deepcopy(model)
    found, optimizer = trained(model, device, flat=True, steps=3, options=options)
    expected, plain = trained(other, device, flat=False, steps=3, options=options)
    for name, weight in expected.items():
        assert torch.allclose(found[name], weight, rtol=1e-5, atol=1e-6), name
    saved, same = optimizer.state_dict()["state"], plain.state_dict()["state"]
    assert all(torch.allclose(saved[n]["momentum_buffer"], same[n]["momentum_buffer"], atol=1e-6) for n in same)
    # A loaded state goes on, and a cleared one begins anew.
    for clear in (False, True):
        state = copy.deepcopy(optimizer.state_dict())
        again, fresh = copy.deepcopy(model), copy.deepcopy(model)
        if clear:
            state["state"] = {}
        one, _ = trained(again, device, flat=True, steps=2, options=options, state=state)
        two, _ = trained(fresh, device, flat=False, steps=2, options=options, state=state)
        assert all(torch.allclose(one[name], two[name], rtol=1e-5, atol=1e-6) for name in one)


@pytest.mark.parametrize("nesterov", [False, True])
def test_flat_steps_are_plain_steps(nesterov: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "sgd_kernel", lambda: twin_of_the_kernel)
    monkeypatch.setattr(optimizers.FlatSGD, "_can_be_flat", lambda self: self._memory is not None)
    check("cpu", nesterov=nesterov)


@pytest.mark.gpu
@pytest.mark.parametrize("nesterov", [False, True])
def test_the_kernel_makes_plain_steps(nesterov: bool) -> None:
    check("cuda", nesterov=nesterov)


def check_copy(device: str, *, masked: bool) -> None:
    """With a copy to keep, all weights have the same bits as where the mask is applied and they are copied after it."""
    found = []
    for keep in (False, True):
        model = network().to(device)
        weights = PrunableWeights(model)
        memory = FlatMemory(weights)
        assert memory.values is not None
        optimizer = optimizers.build(model.parameters(), OPTIONS, torch.device(device))
        assert isinstance(optimizer, optimizers.FlatSGD)
        optimizer.use_flat(memory, add_penalty=True)
        generator = torch.Generator().manual_seed(0)
        if masked:
            scores = {
                name: torch.rand(weight.shape, generator=generator).to(device) for name, weight in weights.items()
            }
            weights.set_mask_(weights.select(scores, weights.total // 3))
        copied = torch.full_like(memory.values, torch.nan, dtype=torch.bfloat16)
        with memory.keeping(copied if keep else None):
            assert torch.equal(copied, memory.values.bfloat16()) == keep
            for _ in range(3):
                memory.copy_gradients_([torch.randn(w.shape, generator=generator).to(device) for w in weights.values()])
                optimizer.step()
                if not keep:
                    weights.apply_mask_()
        assert memory.copy is None
        found.append([memory.values, copied if keep else memory.values.bfloat16()])
        assert bool((memory.values == 0).any()) == masked
        assert not memory.values[memory.values == 0].signbit().any()
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_a_step_keeps_a_copy(masked: bool, flat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "sgd_kernel", lambda: twin_of_the_kernel)
    monkeypatch.setattr(optimizers.FlatSGD, "_can_be_flat", lambda self: flat)
    check_copy("cpu", masked=masked)


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [False, True])
def test_the_kernel_keeps_a_copy(masked: bool) -> None:
    check_copy("cuda", masked=masked)


def test_without_a_gpu_it_is_torch_s_own() -> None:
    found, optimizer = trained(network(), "cpu", flat=True, steps=2)
    expected, _ = trained(network(), "cpu", flat=False, steps=2)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    assert optimizer._moments is None

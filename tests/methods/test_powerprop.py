"""Powerpropagation: that hooks around the optimizer's step do what a reparametrized network would."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import PowerProp, Sparsifier
from tests.methods.tiny import attached, epochs_of


def one_layer(values: list[float], **options: float) -> Sparsifier:
    layer = nn.Linear(len(values), 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([values]))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, **options)
    return hypersparse.attach(layer, optimizer, PowerProp(sparsity=0.5), epochs=1)


def test_a_step_by_hand() -> None:
    sparsifier = one_layer([4.0, -9.0, 0.0, 0.25])
    sparsifier.begin_epoch()
    weight = sparsifier.weights["weight"]
    weight.grad = torch.tensor([[1.0, 1.0, 1.0, -2.0]])
    sparsifier.state.optimizer.step()
    # The roots are 2, -3, 0 and 0.5; their gradients 1 * 2 * 2, 1 * 2 * 3, 0 and -2 * 2 * 0.5.
    roots = [2 - 0.4, -3 - 0.6, 0.0, 0.5 + 0.2]
    torch.testing.assert_close(weight.detach(), torch.tensor([[root * abs(root) for root in roots]]))


def test_an_optimizer_that_calls_its_parents_step_is_still_one_step() -> None:
    class Child(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    torch.optim.SGD([torch.zeros(1)])  # torch adds the calls of the hooks to a class with its first instance
    layer = nn.Linear(1, 1, bias=False)
    optimizer = Child(layer.parameters(), lr=0.1)
    sparsifier = hypersparse.attach(layer, optimizer, PowerProp(sparsity=0.5), epochs=1)
    sparsifier.begin_epoch()
    with torch.no_grad():
        layer.weight.fill_(4.0)
    layer.weight.grad = torch.ones(1, 1)
    optimizer.step()
    assert layer.weight.item() == pytest.approx(1.6**2)


def test_weight_decay_is_on_the_roots() -> None:
    sparsifier = one_layer([4.0, -9.0], weight_decay=0.5)
    sparsifier.begin_epoch()
    weight = sparsifier.weights["weight"]
    weight.grad = torch.zeros(1, 2)
    sparsifier.state.optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([[1.9**2, -(2.85**2)]]))


@pytest.mark.parametrize("power", [2.0, 3.5])
def test_it_is_the_training_of_a_reparametrized_network(power: float) -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randn(32, 5, dtype=torch.float64), torch.randn(32, 1, dtype=torch.float64)
    layer = nn.Linear(5, 1, dtype=torch.float64)
    roots = (layer.weight.detach().abs() ** (1 / power) * layer.weight.detach().sign()).requires_grad_()
    bias = layer.bias.detach().clone().requires_grad_()

    def stepped(parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)

    expected = stepped([roots, bias])
    for _ in range(20):
        expected.zero_grad()
        weight = roots * roots.abs() ** (power - 1)
        nn.functional.mse_loss(inputs @ weight.T + bias, targets).backward()  # type: ignore[no-untyped-call]
        expected.step()
    optimizer = stepped(list(layer.parameters()))
    sparsifier = hypersparse.attach(layer, optimizer, PowerProp(power=power), epochs=1)
    sparsifier.begin_epoch()
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.mse_loss(layer(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    weight = roots * roots.abs() ** (power - 1)
    torch.testing.assert_close(layer.weight.detach(), weight.detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(layer.bias.detach(), bias.detach(), rtol=1e-9, atol=1e-12)


def test_frozen_weights_keep_their_bits() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(50, 8), nn.Linear(8, 2))
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sparsifier = hypersparse.attach(model, optimizer, PowerProp(power=3.0), epochs=1)
    sparsifier.begin_epoch()
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(4, 50)).square().sum().backward()
        optimizer.step()
    assert torch.equal(model[0].weight, before)


def test_the_hooks_act_in_the_first_phase_only() -> None:
    sparsifier = attached(PowerProp(sparsity=0.75), epochs=1)
    for _ in epochs_of(sparsifier):
        pass
    assert sparsifier.done
    weight = sparsifier.weights["0.weight"]
    before = weight.detach().clone()
    sparsifier.state.optimizer.state.clear()
    weight.grad = torch.zeros_like(weight)
    for group in sparsifier.state.optimizer.param_groups:
        group["weight_decay"] = 0.0
    sparsifier.state.optimizer.step()  # the optimizer is used again, for something else
    assert torch.equal(weight, before)


def test_the_momentum_of_the_roots_is_not_that_of_the_weights() -> None:
    sparsifier = attached(PowerProp(sparsity=0.5), epochs=1)
    for _ in epochs_of(sparsifier):
        assert sparsifier.state.optimizer.state
        break
    sparsifier.finish_epoch()
    sparsifier.begin_epoch()
    assert (sparsifier.phase.name, dict(sparsifier.state.optimizer.state)) == ("fine-tune", {})


def test_small_weights_hardly_move() -> None:
    shares = []
    for method in (hypersparse.Dense(), PowerProp(sparsity=0.75, power=4.0)):
        sparsifier = attached(method, epochs=10)
        for epoch in epochs_of(sparsifier):
            if epoch == 9:
                break
        sizes = sparsifier.weights.vector().detach().abs()
        shares.append(sizes.topk(27).values.sum() / sizes.sum())
    assert shares[1] > shares[0]  # of the sum of all, in the largest quarter


def test_the_fine_tuning_is_a_multiple_of_the_training() -> None:
    for multiple, epochs in ((0.01, 1), (0.5, 4), (1.0, 8), (2.25, 18)):
        plan = PowerProp(fine_tune=multiple).plan(8)
        assert [(phase.name, phase.epochs) for phase in plan] == [("train", 8), ("fine-tune", epochs)]


def test_only_runs_of_the_same_power_and_length_share_their_training() -> None:
    first, same, other, longer = (
        method.plan(epochs)[0].cache_key
        for method, epochs in (
            (PowerProp(sparsity=0.9, power=2.0), 4),
            (PowerProp(sparsity=0.5, power=2.0, fine_tune=3.0), 4),
            (PowerProp(sparsity=0.9, power=2.5), 4),
            (PowerProp(sparsity=0.9, power=2.0), 5),
        )
    )
    assert first == same is not None
    assert len({first, other, longer}) == 3
    assert PowerProp().plan(4)[1].cache_key is None

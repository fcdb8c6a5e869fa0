"""S2-SAM, by hand: the loss |w|^2 / 2 has the gradient w."""

import copy

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import Dense, Sparsifier, Techniques
from hypersparse.techniques.perturbation import Perturbation


class Quadratic(nn.Module):
    """Its output is |w|^2 / 2."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.layer = nn.Linear(len(values), 1, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([values]))

    def forward(self, _: object = None) -> torch.Tensor:
        return self.layer.weight.square().sum() / 2


def attached(weights: list[float], radius: float) -> Sparsifier:
    model = Quadratic(weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = hypersparse.attach(model, optimizer, Dense(), epochs=1, techniques=Techniques(sam=radius))
    sparsifier.begin_epoch()
    return sparsifier


def step(sparsifier: Sparsifier) -> list[float]:
    model, optimizer = sparsifier.state.model, sparsifier.state.optimizer
    optimizer.zero_grad()
    model(None).backward()
    optimizer.step()
    found: list[float] = sparsifier.weights["layer.weight"].detach()[0].tolist()
    return found


def test_gradients_are_taken_along_the_gradient_before() -> None:
    sparsifier = attached([3.0, 4.0], 0.5)
    assert step(sparsifier) == pytest.approx([2.7, 3.6])  # nothing is known yet: gradient (3, 4)
    # 0.5 along (3, 4) / 5 is (0.3, 0.4): the gradient at (3, 4) moves (2.7, 3.6).
    assert step(sparsifier) == pytest.approx([2.4, 3.2])
    perturbation = sparsifier.state.memory.get(Perturbation)
    assert perturbation is not None
    assert perturbation.tensors[0][0].tolist() == pytest.approx([0.3, 0.4])


def test_dropped_weights_have_no_part_in_it() -> None:
    sparsifier = attached([3.0, 4.0], 0.5)
    sparsifier.weights.set_mask_(hypersparse.Mask({"layer.weight": torch.tensor([[True, False]])}))
    assert step(sparsifier) == pytest.approx([2.7, 0.0])
    assert step(sparsifier)[0] == pytest.approx(2.7 - 0.1 * (2.7 + 0.5))  # all of the radius is along the kept one
    assert step(sparsifier)[1] == 0.0


def test_the_weights_are_perturbed_for_the_gradient_only() -> None:
    sparsifier = attached([3.0, 4.0], 0.5)
    model, weight = sparsifier.state.model, sparsifier.weights["layer.weight"]
    step(sparsifier)
    before = weight.detach().clone()
    assert model.eval()(None).item() == pytest.approx(before.square().sum().item() / 2)  # in evaluation
    model.train()
    with torch.no_grad():
        assert model(None).item() == pytest.approx(before.square().sum().item() / 2)
    loss = model(None)
    assert loss.item() == pytest.approx(12.5)  # at (3, 4)
    loss.backward()
    model.eval()(None)  # a loop that leaves a step out, as a GradScaler does
    assert torch.equal(weight, before)


def test_a_gradient_that_is_not_finite_perturbs_nothing() -> None:
    sparsifier = attached([3.0, 4.0], 0.5)
    model = sparsifier.state.model.train()
    loss = model(None)
    loss.backward()
    weight = sparsifier.weights["layer.weight"]
    assert weight.grad is not None
    weight.grad[0, 0] = torch.inf
    model.eval()(None)
    perturbation = sparsifier.state.memory.get(Perturbation)
    assert perturbation is not None
    assert perturbation.tensors[0].tolist() == [[0.0, 0.0]]


def test_a_closure_is_called_once_and_its_step_is_from_the_weights_themselves() -> None:
    sparsifier = attached([3.0, 4.0], 0.5)
    model, optimizer, weight = sparsifier.state.model, sparsifier.state.optimizer, sparsifier.weights["layer.weight"]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(None)
        loss.backward()
        return loss

    for expected in ([2.7, 3.6], [2.4, 3.2]):
        optimizer.step(closure)
        assert weight.detach()[0].tolist() == pytest.approx(expected)


def test_detached_the_model_is_left_alone() -> None:
    sparsifier = attached([3.0, 4.0], 0.5)
    step(sparsifier)
    sparsifier.detach()
    assert not sparsifier.state.model._forward_pre_hooks


def test_a_copy_of_the_model_is_not_perturbed() -> None:
    sparsifier = attached([3.0, 4.0], 0.5)
    step(sparsifier)
    copied = copy.deepcopy(sparsifier.state.model)
    before = copied(None).item()
    assert copied.train()(None).item() == before

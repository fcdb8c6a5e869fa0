"""Magnitude: its plan, what it keeps, and who shares its dense training."""

import torch

from hypersparse import Dense, Magnitude
from hypersparse.methods.phase_plan import plan_of
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude
from tests.methods.small import perceptron, state_of, three_classes, trained


def test_its_plan() -> None:
    dense, fine = Magnitude().plan(7)
    assert (dense.name, dense.epochs, dense.lr.held, dense.pretraining) == ("pre-train", 7, False, True)
    assert (fine.name, fine.epochs, fine.reset_optimizer, fine.cache_key) == ("fine-tune", 7, True, None)
    assert Magnitude(dense_epochs=3).plan(7)[0].epochs == 3
    assert [phase.name for phase in plan_of(Magnitude(), epochs=7, trained=True)] == ["fine-tune"]


def test_sparsities_share_the_dense_training_and_lengths_do_not() -> None:
    shared = {
        (sparsity, length): Magnitude(sparsity=sparsity, dense_epochs=length).plan(7)[0].cache_key
        for sparsity in (0.5, 0.9)
        for length in (3, 4, None)
    }
    assert shared[0.5, 3] == shared[0.9, 3]
    assert len(set(shared.values())) == 3


def test_four_weights() -> None:
    model = torch.nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.1, -0.4, 0.3, -0.2]]))
    state = state_of(model)
    Magnitude(sparsity=0.5).prune(state)
    assert model.weight.tolist() == [[0.0, torch.tensor(-0.4).item(), torch.tensor(0.3).item(), 0.0]]


def test_the_largest_weights_at_the_end_of_the_dense_training_stay() -> None:
    method = Magnitude(sparsity=0.8, dense_epochs=3)
    dense = trained(Dense(), perceptron(), three_classes(), epochs=3)
    assert dense.mask is None
    expected = Mask.top(magnitude(dense.weights), 22)
    assert trained(method, perceptron(), three_classes(), epochs=2).mask == expected

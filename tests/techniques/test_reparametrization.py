"""Weights as products, by hand."""

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import Dense, OptionError, PowerProp, Techniques
from hypersparse.techniques.reparametrization import Factors
from tests.techniques.one_layer import mask, one_layer, step


def factor(sparsifier: hypersparse.Sparsifier) -> list[float]:
    found = sparsifier.state.memory.get(Factors)
    assert found is not None
    numbers: list[float] = found.values[0][0].tolist()
    return numbers


def test_a_step_by_hand() -> None:
    sparsifier = one_layer([2.0, 0.0], reparametrize=1, reparametrize_balance=3.0)
    assert factor(sparsifier) == pytest.approx([2.0, 3**0.5])  # 2 = 2 x 1 with 4 - 1 = 3
    # w: 1 - 0.1 (2 x 1) = 0.8; m: 2 - 0.1 (1 x 1) = 1.9. The second: w = -0.1 x sqrt(3), m stays.
    assert step(sparsifier, [1.0, 1.0]) == pytest.approx([0.8 * 1.9, -0.3])
    assert factor(sparsifier) == pytest.approx([1.9, 3**0.5])


def test_momentum_and_weight_decay_act_on_both_factors() -> None:
    sparsifier = one_layer([2.0], reparametrize=5, reparametrize_balance=3.0, sgd_momentum=0.5, sgd_weight_decay=0.1)
    step(sparsifier, [1.0])
    w, m = 1 - 0.1 * (2 + 0.1), 2 - 0.1 * (1 + 0.2)
    assert factor(sparsifier) == pytest.approx([m])
    found = step(sparsifier, [0.0])
    w2, m2 = w - 0.1 * (0.5 * 2.1 + 0.1 * w), m - 0.1 * (0.5 * 1.2 + 0.1 * m)
    assert found == pytest.approx([w2 * m2])


def test_nesterov_momentum_moves_both_factors() -> None:
    sparsifier = one_layer([2.0], reparametrize=5, reparametrize_balance=3.0, sgd_momentum=0.5, sgd_nesterov=True)
    # w: 1 - 0.1 (2 + 0.5 x 2); m: 2 - 0.1 (1 + 0.5 x 1).
    assert step(sparsifier, [1.0]) == pytest.approx([0.7 * 1.85])
    assert factor(sparsifier) == pytest.approx([1.85])


def test_m_stays_above_zero() -> None:
    sparsifier = one_layer([2.0], reparametrize=5, reparametrize_balance=3.0)
    least = 1e-3 * 3**0.5
    assert step(sparsifier, [30.0]) == pytest.approx([-5 * least])  # w: 1 - 0.1 x 60; m would be 2 - 0.1 x 30
    assert factor(sparsifier) == pytest.approx([least])


def test_balanced_again_after_an_epoch_the_weight_is_the_same() -> None:
    sparsifier = one_layer([2.0], reparametrize=1, reparametrize_balance=3.0)
    (before,) = step(sparsifier, [1.0])
    sparsifier.finish_epoch()
    sparsifier.begin_epoch()
    (m,) = factor(sparsifier)
    assert m**2 - (before / m) ** 2 == pytest.approx(3.0)
    assert sparsifier.weights["weight"].item() == before


def test_dropped_weights_stay_exactly_zero() -> None:
    sparsifier = one_layer([2.0, 1.0], reparametrize=1)
    mask(sparsifier, [True, False])
    for _ in range(3):
        assert step(sparsifier, [1.0, 1.0])[1] == 0.0


def test_what_cannot_work_is_said() -> None:
    model = nn.Linear(2, 2)
    adam = torch.optim.AdamW(model.parameters())
    techniques = Techniques(reparametrize=1)
    sparsifier = hypersparse.attach(model, adam, Dense(), epochs=1, techniques=techniques)
    with pytest.raises(OptionError, match="AdamW has none; pass"):
        sparsifier.begin_epoch()
    with pytest.raises(OptionError, match="the phase train of this method changes them there itself"):
        hypersparse.attach(
            model, torch.optim.SGD(model.parameters(), lr=0.1), PowerProp(), epochs=1, techniques=techniques
        )

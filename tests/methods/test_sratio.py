"""SRatio: its counts, and that positions are drawn by lot."""

import pytest
import torch

from hypersparse import OptionError, SRatio, models
from hypersparse.sparsity.scores import random_scores
from tests.methods.small import perceptron, sequence_network, state_of


def test_the_papers_resnet() -> None:
    model = models.build("resnet32", shape=(3, 32, 32), classes=100)
    exact = SRatio(sparsity=0.98).mask(state_of(model))
    assert exact.kept == 37_343
    authors = SRatio(sparsity=0.98, tie_rule="authors").mask(state_of(model))
    assert list(authors.kept_by_layer().values())[:6] == [124, 1255, 1181, 1109, 1040, 973]
    assert authors.kept_by_layer()["linear.weight"] == 3840
    assert authors.kept == 37_324


def test_densities_fall_with_depth() -> None:
    model = models.build("resnet20", shape=(3, 32, 32), classes=10)
    mask = SRatio(sparsity=0.9).mask(state_of(model))
    densities = [float(layer.float().mean()) for layer in mask.values()][:-1]
    assert densities == sorted(densities, reverse=True)


def test_a_perceptron_by_hand() -> None:
    # 72 and 36 weights, a plain chain; 22 kept. The last layer keeps int(0.3 x 36) = 10, the first what is left.
    assert SRatio(sparsity=0.8).mask(state_of(perceptron())).kept_by_layer() == {"0.weight": 12, "3.weight": 10}
    half = SRatio(sparsity=0.8, linear_keep=0.5).mask(state_of(perceptron()))
    assert half.kept_by_layer() == {"0.weight": 4, "3.weight": 18}


def test_the_rule_can_be_chosen() -> None:
    # 36, 72 and 48 weights, 32 kept, 14 of them in the last layer; 12 and 6 shared as 432 to 432, or 12 and 1.5.
    kept = {rule: SRatio(sparsity=0.8, rule=rule).mask(state_of(sequence_network())) for rule in ("residual", "plain")}
    assert list(kept["residual"].kept_by_layer().values()) == [9, 9, 14]
    assert list(kept["plain"].kept_by_layer().values()) == [14, 4, 14]
    assert SRatio(sparsity=0.8).mask(state_of(sequence_network())) == kept["plain"]


def test_no_room_for_the_last_layer() -> None:
    with pytest.raises(OptionError, match="smaller `linear_keep`"):
        SRatio(sparsity=0.8, linear_keep=0.9).mask(state_of(perceptron()))
    with pytest.raises(OptionError, match="`linear_keep` should be less than or equal to 1"):
        SRatio(linear_keep=30)


@pytest.mark.slow
def test_positions_are_even() -> None:
    """Over many draws every weight is kept about as often."""
    often = sum(SRatio(sparsity=0.8).mask(state_of(perceptron(), seed=seed))["0.weight"].float() for seed in range(600))
    assert isinstance(often, torch.Tensor)
    assert float(often.mean()) == 100.0
    assert float(often.std()) == pytest.approx((600 * 1 / 6 * 5 / 6) ** 0.5, rel=0.3)


def test_lots_are_rarely_equal() -> None:
    drawn = random_scores({"a": torch.empty(1000, 1000)}, torch.Generator().manual_seed(0))["a"]
    assert len(drawn.unique()) == 10**6

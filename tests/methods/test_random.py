"""Random: by lot, in the counts of its distribution."""

import pytest
import torch
from torch import nn

from hypersparse import Random
from hypersparse.sparsity.distributions import erk, uniform
from hypersparse.sparsity.scores import random_scores
from tests.methods.small import sequence_network, state_of


def test_counts_are_those_of_the_distribution() -> None:
    state = state_of(sequence_network())
    assert Random(sparsity=0.8).mask(state).kept_by_layer() == erk(state.weights, 32)
    assert Random(sparsity=0.8, distribution="uniform").mask(state).kept_by_layer() == uniform(state.weights, 32)


def test_over_all_layers_every_weight_has_the_same_chance() -> None:
    often = [0.0, 0.0, 0.0]
    for seed in range(200):
        kept = Random(sparsity=0.5, distribution="global").mask(state_of(sequence_network(), seed=seed)).kept_by_layer()
        assert sum(kept.values()) == 78
        often = [before + count / 200 for before, count in zip(often, kept.values(), strict=True)]
    assert often == pytest.approx([18, 36, 24], rel=0.05)


def test_within_a_layer_every_weight_has_the_same_chance() -> None:
    often, state = torch.zeros(3, 4), state_of(nn.Linear(4, 3))
    for _ in range(500):
        often += Random(sparsity=0.5).mask(state)["weight"]
    assert often.flatten().tolist() == pytest.approx([250.0] * 12, rel=0.15)  # 3.3 standard deviations


def test_no_two_of_many_weights_draw_the_same_number() -> None:
    """Of equal ones the first would be kept."""
    drawn = random_scores({"weight": torch.zeros(100_000)}, torch.Generator().manual_seed(0))["weight"]
    assert len(set(drawn.tolist())) == 100_000


def test_every_draw_is_another() -> None:
    state = state_of(sequence_network())
    assert Random(sparsity=0.8).mask(state) != Random(sparsity=0.8).mask(state)

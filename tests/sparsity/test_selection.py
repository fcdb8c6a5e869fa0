"""Masks from scores: distributions by name, and rounds."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from hypersparse import Mask
from hypersparse.errors import OptionError
from hypersparse.sparsity.selection import select, select_in_rounds


def test_a_distribution_by_name() -> None:
    scores = {"a": torch.tensor([[9.0, 8.0], [7.0, 6.0]]), "b": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    assert select(scores, 4).kept_by_layer() == {"a": 4, "b": 0}
    for name in ("uniform", "erk"):
        mask = select(scores, 4, name)
        assert mask["a"].tolist() == [[True, True], [False, False]]
        assert mask["b"].tolist() == [[False, False], [True, True]]
    assert select(scores, 4, "sratio").kept_by_layer() == {"a": 3, "b": 1}
    with pytest.raises(OptionError, match="no distribution `erl`; did you mean `erk`"):
        select(scores, 4, "erl")  # type: ignore[arg-type]


FOUR = {"a": torch.tensor([4.0, 3.0]), "b": torch.tensor([2.0, 1.0])}


def test_rounds_score_what_the_last_one_left() -> None:
    seen: list[list[float]] = []

    def score(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        seen.append(torch.cat(list(values.values())).tolist())
        return {name: -value for name, value in values.items()}  # the smallest first, but not those that are gone

    mask = select_in_rounds(FOUR, 1, rounds=2, score=score)
    assert seen == [[4, 3, 2, 1], [0, 0, 2, 1]]
    assert mask.vector().tolist() == [False, False, False, True]


def test_what_was_dropped_comes_back_only_if_it_may() -> None:
    def score(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        pruned = any((value == 0).any() for value in values.values())
        return {name: -weight if pruned else weight for name, weight in FOUR.items()}

    kept = {recover: select_in_rounds(FOUR, 1, rounds=2, score=score, recover=recover) for recover in (False, True)}
    assert kept[False].vector().tolist() == [False, True, False, False]  # the smaller of the two that were left
    assert kept[True].vector().tolist() == [False, False, False, True]


def test_rounds_by_layer_keep_exactly_what_they_should() -> None:
    weights = {"a": torch.randn(7, 3), "b": torch.randn(5, 7), "c": torch.randn(2, 5)}
    for distribution in ("global", "uniform", "erk", "sratio"):
        mask = select_in_rounds(
            weights,
            9,
            rounds=7,
            score=lambda values: {name: value.abs() for name, value in values.items()},
            distribution=distribution,  # type: ignore[arg-type]
        )
        assert mask.kept == 9


def test_at_least_keeps_all_equal_ones() -> None:
    scores = {"a": torch.tensor([3.0, 1.0]), "b": torch.tensor([2.0, 2.0])}
    assert Mask.at_least(scores, 1).kept == 1
    assert Mask.at_least(scores, 2).kept == 3
    assert Mask.at_least(scores, 4).kept == 4

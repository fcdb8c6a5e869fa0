"""Layers with an exact share or a least one: counts on hand-computable layers, in all distributions and rounds."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import hypersparse
from hypersparse import ART, GMP, IMP, SNIP, Mask, OptionError, PrunableWeights, RigL, SRatio, Task, distributions
from hypersparse.sparsity import penalties
from hypersparse.sparsity.limits import Limits, select_within, share_count
from hypersparse.sparsity.scores import magnitude
from tests.methods.small import three_classes, trained

SIZES = {"a": 10, "b": 20, "c": 70}


def scores() -> dict[str, Tensor]:
    """`c` has the largest scores, then `b`, then `a`."""
    return {name: torch.arange(float(size)) + 1000 * place for place, (name, size) in enumerate(SIZES.items())}


def layers() -> nn.ModuleDict:
    """100 weights in three layers."""
    torch.manual_seed(0)
    return nn.ModuleDict({"a": nn.Linear(5, 2), "b": nn.Linear(5, 4), "c": nn.Linear(7, 10)})


def limited(sparsity: float = 0.8, **options: Any) -> PrunableWeights:
    weights = PrunableWeights(layers())
    weights.set_limits_(sparsity, **options)
    return weights


def counts(limits: Limits | None, keep: int, distribution: Any = "global", **options: Any) -> list[int]:
    return list(distributions.select(scores(), keep, distribution, limits=limits, **options).kept_by_layer().values())


# Counts


def test_a_named_layer_keeps_its_share_and_the_others_compete() -> None:
    limits = Limits(20, SIZES, {"a": 5}, {})
    assert counts(limits, 20) == [5, 0, 15]
    mask = distributions.select(scores(), 20, limits=limits)
    assert mask["a"].tolist() == [False] * 5 + [True] * 5  # its own best
    assert mask["c"].tolist() == [False] * 55 + [True] * 15


def test_every_layer_keeps_its_least_and_only_the_rest_is_shared() -> None:
    assert counts(Limits(20, SIZES, {}, {"a": 1, "b": 2, "c": 7}), 20) == [1, 2, 17]
    assert counts(Limits(20, SIZES, {"c": 7}, {"a": 1, "b": 2}), 20) == [1, 12, 7]
    assert counts(Limits(10, SIZES, {}, {"a": 1, "b": 2, "c": 7}), 10) == [1, 2, 7]


def test_a_least_that_is_reached_anyway_changes_nothing() -> None:
    assert counts(Limits(80, SIZES, {}, {"c": 7}), 80) == counts(None, 80) == [0, 10, 70]


def test_distributions_share_what_the_named_layers_leave() -> None:
    limits = Limits(24, SIZES, {"a": 6}, {})
    assert counts(limits, 24, "uniform") == [6, 4, 14]
    assert counts(Limits(19, SIZES, {"a": 1}, {"b": 10}), 19, "uniform") == [1, 10, 8]
    for distribution in ("erk", "sratio"):
        rest = {name: layer for name, layer in PrunableWeights(layers()).items() if name != "a.weight"}
        alone = distributions.shares(rest, 18, distribution)
        weights = limited(0.76, densities={"a": 0.6})
        assert weights.shares(24, distribution) == {"a.weight": 6, **alone}


def test_a_rule_for_equal_scores_is_for_the_layers_that_compete() -> None:
    limits = Limits(20, SIZES, {"a": 5}, {})
    equal = {name: torch.ones(size) for name, size in SIZES.items()}
    least = select_within(limits, equal, 20, most=None, rule=Mask.at_least)
    assert list(least.kept_by_layer().values()) == [5, 20, 70]
    above = select_within(limits, scores(), 20, most=None, rule=Mask.strictly_above)
    assert list(above.kept_by_layer().values()) == [5, 0, 14]


def test_a_share_is_counted_in_decimal() -> None:
    assert share_count(1000, 0.1, "densities") == 100
    assert share_count(70, 0.7, "densities") == 49  # 0.7 * 70 is 48.99999999999999 in binary floating point
    assert share_count(3, 0.001, "densities") == 1


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 99), st.integers(1, 10), st.integers(0, 10), st.integers(0, 20), st.integers(1, 30))
def test_counts_are_exact_in_every_round(keep: int, exact: int, least_b: int, least_c: int, rounds: int) -> None:
    limits = Limits(keep, SIZES, {"a": exact}, {"b": least_b, "c": least_c})
    if not exact + max(1, least_b + least_c) <= keep <= exact + 90:
        return
    mask = Mask.all_kept(scores())
    for count in distributions.in_rounds(100, keep, rounds):
        before, mask = mask, distributions.select(scores(), count, among=mask, limits=limits)
        assert mask.kept == count
        assert (mask - before).kept == 0
        assert mask.kept_by_layer()["b"] >= least_b
        assert mask.kept_by_layer()["c"] >= least_c
    assert mask.kept_by_layer()["a"] == exact


def test_on_the_way_named_layers_are_as_far_as_the_network() -> None:
    limits = Limits(20, SIZES, {"a": 10, "b": 4}, {})
    assert limits.exact_at(100, SIZES) == {"a": 10, "b": 20}
    assert limits.exact_at(60, SIZES) == {"a": 10, "b": 12}
    assert limits.exact_at(20, SIZES) == {"a": 10, "b": 4}


# What is asked for and cannot be


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"densities": {"c": 0.5}}, "ask for 36 weights, but 20 of 100 weights are kept in all; lower them"),
        ({"min_density": 0.3}, "ask for 30 weights, but 20 of 100 weights are kept in all"),
        ({"densities": {"c": 0.2, "b": 0.3}}, "ask for 21 weights, but 20 of 100"),
        ({"densities": {"*": 0.2, "c.weight": 0.2}, "sparsity": 0.5}, "no more than 20 weights can be kept, but 50"),
        ({"densities": {"a": 1.5}}, "`densities` is the fraction of weights kept, in (0, 1]; got 1.5."),
        ({"min_density": 0}, "`min_density` is the fraction of weights kept, in (0, 1]; got 0."),
        ({"densities": {"d": 0.5}}, "`densities` names `d`, and no layer has such a name; did you mean"),
        ({"densities": {"c.bias": 0.5}}, "no weight is prunable: `c.bias` is a bias or norm."),
        ({"densities": {"a": 0.5, "*": 0.1}}, "gives `a.weight` two shares: 0.5 by `a` and 0.1 by `*`"),
        ({"densities": ["a"]}, "`densities` is {name: share}, such as {'head': 0.5}; got ['a']."),
        ({"densities": {"a": 0.5}, "sparsity": None}, "are for methods that prune, and this one does not."),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_at_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)):
        limited(**{"sparsity": 0.8, **options})


def test_shares_of_all_layers_may_make_up_the_total() -> None:
    weights = limited(densities={nn.Linear: 0.2})
    assert list(weights.select(magnitude(weights), 20).kept_by_layer().values()) == [2, 4, 14]


def test_a_mask_chosen_without_the_limits_is_refused() -> None:
    weights = limited(densities={"a": 0.5}, min_density=0.05)
    with pytest.raises(OptionError, match=r"`a\.weight`, against `densities` or `min_density`"):
        weights.set_mask_(
            Mask.top({name: torch.arange(float(w.numel())).view_as(w) for name, w in weights.items()}, 20)
        )
    assert weights.mask is None
    weights.set_mask_(Mask.all_kept(weights))


# In methods


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3))  # 72, 144, 36


@pytest.mark.parametrize(
    "method",
    [
        RigL(sparsity=0.8, distribution="uniform", update_every=2),  # the first layer is named, so not kept whole
        RigL(sparsity=0.8, distribution="literal", update_every=2),
        SRatio(sparsity=0.8, tie_rule="authors"),
        SNIP(sparsity=0.8, tie_rule="authors"),
        ART(sparsity=0.8, tie_rule="authors", pretrain_epochs=0, max_regularized_epochs=1, penalty="l1"),
    ],
)
@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_options_that_choose_masks_in_another_way(method: Any) -> None:
    sparsifier = trained(method, network(), three_classes(), densities={"0": 0.25, "4": 0.5})
    assert sparsifier.mask is not None
    kept = sparsifier.mask.kept_by_layer()
    assert (kept["0.weight"], kept["4.weight"]) == (18, 18)
    assert 0 < kept["2.weight"] <= 29  # 51 of 252 in all, or a few less


@pytest.mark.parametrize("method", [GMP(sparsity=0.8), IMP(sparsity=0.8, rounds=3, rewind=0.0)])
def test_a_named_layer_is_pruned_as_gradually_as_the_others(method: Any) -> None:
    densities: list[float] = []
    batches = three_classes()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    task = Task(nn.functional.cross_entropy, batches)
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=6, task=task, densities={"4": 0.5})
    for _ in sparsifier.epochs():
        for inputs, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if sparsifier.mask is not None:
            densities.append(sparsifier.mask.kept_by_layer()["4.weight"] / 36)
    assert densities == sorted(densities, reverse=True)
    assert densities[-1] == 0.5
    assert len(set(densities)) >= 3


def test_the_penalty_of_art_has_a_threshold_for_each_named_layer() -> None:
    weights = limited(0.74, densities={"a": 0.5, "b": 1.0})
    vector = weights.vector()
    a, c = vector[:10], vector[30:]
    parts = [(part.tolist(), places) for part, places in weights.competing(vector, 26)]
    assert parts == [(a.tolist(), 5), (c.tolist(), 1)]  # `b` keeps all its weights: no penalty


def test_the_penalty_of_art_keeps_the_largest_of_a_layer_at_its_least() -> None:
    weights = limited(min_density=0.1)
    with torch.no_grad():
        weights["a.weight"].mul_(1e-3)  # all below what the others keep
    (small, places), (rest, left) = weights.competing(weights.vector(), 20)
    assert (small.numel(), places, rest.numel(), left) == (10, 1, 90, 19)
    gradient = penalties.hypersparse_grad(small, places)
    joint = penalties.hypersparse_grad(weights.vector(), 20)[:10]
    largest = int(small.abs().argmax())
    assert gradient.abs().argmin() == largest  # the one that will be kept is shrunk least
    assert gradient[largest].abs() / gradient.abs().max() < 0.75 < joint[largest].abs() / joint.abs().max()


def test_a_state_with_other_limits_is_refused() -> None:
    first = trained(GMP(sparsity=0.8), network(), three_classes(), densities={"4": 0.5})
    saved = first.state_dict()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    other = hypersparse.attach(model, optimizer, GMP(sparsity=0.8), epochs=2, densities={"4": 0.25})
    with pytest.raises(OptionError, match=r"`4\.weight`, against `densities`"):
        other.load_state_dict(saved)

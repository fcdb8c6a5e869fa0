"""Exact counts from a sparsity, and how layers share them."""

from collections.abc import Mapping
from itertools import pairwise
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hypersparse import Mask, PrunableWeights, models
from hypersparse.errors import OptionError
from hypersparse.sparsity.distributions import (
    check_sparsity,
    erk,
    in_rounds,
    keep_count,
    keep_in_float32,
    select,
    select_in_rounds,
    sratio,
    uniform,
)

SPARSITIES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
# Prunable weights, and those kept by the authors' rule, which is one fewer than nominal (facts 5.3).
KEPT_BY_AUTHORS = {
    1_855_584: (185_558, 92_779, 37_111, 18_555, 9_277, 3_711),
    1_867_104: (186_710, 93_355, 37_342, 18_671, 9_335, 3_734),
    1_879_904: (187_990, 93_995, 37_598, 18_799, 9_399, 3_759),
    20_024_000: (2_002_399, 1_001_199, 400_479, 200_239, 100_119, 40_047),
    20_070_080: (2_007_007, 1_003_503, 401_401, 200_700, 100_350, 40_140),
    20_121_280: (2_012_127, 1_006_063, 402_425, 201_212, 100_606, 40_242),
}


@pytest.mark.parametrize("total", KEPT_BY_AUTHORS)
def test_the_papers_networks(total: int) -> None:
    nominal = tuple(keep_count(total, sparsity) for sparsity in SPARSITIES)
    assert nominal == tuple(kept + 1 for kept in KEPT_BY_AUTHORS[total])


def test_the_product_is_taken_in_decimal() -> None:
    assert int(0.7 * 90) == 62  # what binary floating point would remove
    assert keep_count(90, 0.7) == 90 - 63


@pytest.mark.parametrize(
    ("total", "sparsity", "kept"), [(10, 0.0, 10), (10, 0.9, 1), (10, 0.99, 1), (1, 0.5, 1), (3, 0.5, 2), (7, 0, 7)]
)
def test_small_counts(total: int, sparsity: float, kept: int) -> None:
    assert keep_count(total, sparsity) == kept


@given(total=st.integers(1, 10**9), sparsity=st.floats(0, 1, exclude_max=True))
def test_no_sparsity_leaves_nothing(total: int, sparsity: float) -> None:
    assert 1 <= keep_count(total, sparsity) <= total


@given(percent=st.integers(0, 99), hundreds=st.integers(1, 10**6))
def test_whole_percentages_of_hundreds_are_exact(percent: int, hundreds: int) -> None:
    assert keep_count(100 * hundreds, percent / 100) == (100 - percent) * hundreds


@pytest.mark.parametrize(
    ("sparsity", "says"),
    [
        (98, "must be in [0, 1); got 98. For 98 % sparsity pass 0.98."),
        (99.5, "got 99.5. For 99.5 % sparsity pass 0.995."),
        (1.0, "got 1."),
        (100, "got 100."),
        (-0.1, "got -0.1."),
        (float("nan"), "got nan."),
        (float("inf"), "got inf."),
        (True, "got 1."),
        (False, "got 0."),
    ],
)
def test_what_is_no_sparsity_says_what_to_pass(sparsity: float, says: str) -> None:
    for function in (check_sparsity, lambda value: keep_count(100, value)):
        with pytest.raises(OptionError) as error:
            function(sparsity)
        assert says in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("sparsity", [0, 0.0, 0.5, 0.999])
def test_a_sparsity_is_returned(sparsity: float) -> None:
    assert check_sparsity(sparsity) == sparsity


# SmartRatio's counts in the authors' arithmetic (facts 14): model, classes, sparsity, what the linear layer keeps.
SMART_RATIOS = {
    (
        "resnet32",
        10,
        0.9,
        0.3,
    ): "689 6937 6529 6134 5750 5379 5021 4674 4340 4019 3710 6826 12515 634 10388 9399 8459 7568 "
    "6727 5936 5194 4501 7717 13059 604 8904 7123 5540 4155 2968 1978 1187 593 384",
    (
        "resnet32",
        100,
        0.98,
        0.3,
    ): "124 1255 1181 1109 1040 973 908 845 785 727 671 1235 2264 114 1879 1700 1530 1369 1217 "
    "1073 939 814 1396 2362 109 1610 1288 1002 751 536 357 214 107 3840",
    (
        "resnet32",
        100,
        0.998,
        0.1,
    ): "9 91 86 81 76 71 66 61 57 53 49 90 165 8 137 124 112 100 89 78 68 59 102 173 8 118 94 73 55 39 26 15 7 1280",
    (
        "vgg19",
        10,
        0.9,
        0.3,
    ): "1728 36864 73728 147456 294912 589824 187413 102069 131969 171032 109937 69283 42167 24239 12669 5567 1536",
    (
        "vgg19",
        10,
        0.98,
        0.3,
    ): "1728 36864 61815 38852 43100 51309 31897 20351 26312 34101 21920 13814 8407 4832 2526 1110 1536",
}
LAYERS = {"first": torch.empty(4, 3), "middle": torch.empty(10, 4), "last": torch.empty(2, 10)}


def layers_of(model: str, classes: int) -> dict[str, Tensor]:
    with torch.device("meta"):
        built = models.build(model, shape=(3, 32, 32), classes=classes)
    return dict(PrunableWeights(built).items())


@pytest.mark.parametrize(("model", "classes", "sparsity", "linear_keep"), SMART_RATIOS)
def test_smart_ratios_of_the_papers_networks(model: str, classes: int, sparsity: float, linear_keep: float) -> None:
    layers = layers_of(model, classes)
    total = sum(layer.numel() for layer in layers.values())
    expected = [int(count) for count in SMART_RATIOS[model, classes, sparsity, linear_keep].split()]
    down = sratio(layers, keep_in_float32(total, sparsity), linear_keep=linear_keep, rounding="down")
    assert list(down.values()) == expected
    keep = keep_count(total, sparsity)
    exact = sratio(layers, keep)  # which finds the rule and the fraction of the last layer by itself
    assert sum(exact.values()) == keep
    assert all(abs(kept - count) <= 3 for kept, count in zip(exact.values(), expected, strict=True))
    assert exact["linear.weight"] == expected[-1]


@pytest.mark.parametrize(("sparsity", "linear_keep"), [(0.995, 0.3), (0.998, 0.1)])
def test_the_last_layer_keeps_less_only_where_it_must(sparsity: float, linear_keep: float) -> None:
    for classes in (100, 200):
        layers = layers_of("resnet32", classes)
        keep = keep_count(sum(layer.numel() for layer in layers.values()), sparsity)
        assert sratio(layers, keep)["linear.weight"] == int(linear_keep * 128 * classes)


def test_a_budget_below_the_last_layers_names_linear_keep() -> None:
    layers = layers_of("resnet32", 100)
    with pytest.raises(OptionError, match=r"`linear_keep` 0.3 the last layer keeps 3840 of its 12,800.*only 3735 can"):
        sratio(layers, 3735, linear_keep=0.3)
    with pytest.raises(OptionError, match=r"Pass a smaller `linear_keep`"):
        sratio(layers, 1000)


def test_smart_ratios_by_hand() -> None:
    # n = 3: 12 and 6 in the residual rule; 12 x 12 + 6 x 40 = 384. The last keeps 0.3 x 20 = 6 of 25, so 19 are left.
    assert sratio(LAYERS, 25, rule="residual", rounding="down") == {"first": 7, "middle": 11, "last": 6}
    assert sratio(LAYERS, 25, rule="residual") == {"first": 7, "middle": 12, "last": 6}
    # Divided by 1 and 4: 12 and 1.5; 144 + 60 = 204. The first would have 13.4 of 12; 1.4 go on to 5.6, or 1.
    assert sratio(LAYERS, 25) == {"first": 12, "middle": 7, "last": 6}
    assert sratio(LAYERS, 25, rounding="down") == {"first": 12, "middle": 6, "last": 6}
    assert sratio(LAYERS, 72) == {"first": 12, "middle": 40, "last": 20}
    assert sratio({"only": torch.empty(4, 3)}, 5) == {"only": 5}


def test_smart_ratios_round_down_what_they_hand_on() -> None:
    # Plain, n = 4: 20, 12/4 = 3, 6/9 = 2/3. The last keeps int(0.3 x 8) = 2 of 12, so 10 are left; the factor is
    # 10 / (60 + 12 + int(2/3 x 10)) = 10 / 78. The first would have 7.69 of 3: 4, not 4.69, go on. The second has 1.54
    # of 4, and so room for 2, not for 2.46; the third has 0.85 and 2 more. Unrounded it would have 3.09.
    shapes = {"a": (1, 3), "b": (4, 1), "c": (2, 5), "d": (4, 2)}
    layers = {name: torch.empty(shape) for name, shape in shapes.items()}
    assert sratio(layers, 12, rule="plain", rounding="down") == {"a": 3, "b": 4, "c": 2, "d": 2}


def test_uniform_by_hand() -> None:
    assert uniform(LAYERS, 18) == {"first": 3, "middle": 10, "last": 5}
    assert uniform(LAYERS, 18, dense=("first",)) == {"first": 12, "middle": 4, "last": 2}
    assert uniform(LAYERS, 12, dense=["first"]) == {"first": 12, "middle": 0, "last": 0}
    assert uniform(LAYERS, 72, dense=list(LAYERS)) == {"first": 12, "middle": 40, "last": 20}
    with pytest.raises(OptionError, match=r"'first'\] stay dense and have 12 weights, but only 11 can be kept"):
        uniform(LAYERS, 11, dense=("first",))
    with pytest.raises(OptionError, match="no layer `frist`; did you mean `first`"):
        uniform(LAYERS, 11, dense=("frist",))


def test_erk_by_hand() -> None:
    # Dimensions 7 + 14 + 12 = 33.
    assert erk(LAYERS, 33) == {"first": 7, "middle": 14, "last": 12}
    # Twice that would be 14 of the first one's 12: it is dense, and 54 are shared 14 to 12, which is 24.9 of 20.
    assert erk(LAYERS, 66) == {"first": 12, "middle": 34, "last": 20}
    # A convolution counts its kernel too: 2 + 3 + 5 + 5 of 150 against 5 of 6.
    assert erk({"conv": torch.empty(2, 3, 5, 5), "linear": torch.empty(3, 2)}, 20) == {"conv": 15, "linear": 5}


shapes = st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=4), min_size=1, max_size=6)


@given(shapes=shapes, fraction=st.floats(0, 1), data=st.data())
def test_every_distribution_keeps_exactly_what_it_should(
    shapes: list[list[int]], fraction: float, data: st.DataObject
) -> None:
    layers = {str(number): torch.empty(shape, device="meta") for number, shape in enumerate(shapes)}
    total = sum(prod(shape) for shape in shapes)
    keep = max(1, round(fraction * total))
    dense = data.draw(st.sets(st.sampled_from(sorted(layers))))
    budgets = [uniform(layers, keep), erk(layers, keep)]
    if sum(layers[name].numel() for name in dense) <= keep:
        budgets.append(uniform(layers, keep, dense=dense))
        assert all(budgets[-1][name] == layers[name].numel() for name in dense)
    if int(0.1 * layers[str(len(layers) - 1)].numel()) < keep:
        budgets += [sratio(layers, keep, rule=rule) for rule in ("residual", "plain", "auto")]
    for budget in budgets:
        assert list(budget) == list(layers)
        assert sum(budget.values()) == keep
        assert all(0 <= budget[name] <= layer.numel() for name, layer in layers.items())


@given(total=st.integers(1, 10**7), fraction=st.floats(0, 1), rounds=st.integers(1, 100))
def test_rounds_shrink_to_what_is_kept(total: int, fraction: float, rounds: int) -> None:
    keep = max(1, round(fraction * total))
    counts = in_rounds(total, keep, rounds)
    assert len(counts) == rounds
    assert counts[-1] == keep
    assert [total, *counts] == sorted([total, *counts], reverse=True)


def test_rounds_of_the_reference_floor_the_removed_count() -> None:
    total, keep, rounds = 1000, 20, 4  # densities 0.376, 0.1414, 0.0532
    assert in_rounds(total, keep, rounds, rounding="up") == [377, 142, 54, 20]
    assert in_rounds(total, keep, rounds) == [376, 141, 53, 20]


@pytest.mark.parametrize(
    ("keep", "rounds", "says"), [(0, 1, "from 1 to 10; got 0"), (11, 1, "got 11"), (5, 0, "1 or more")]
)
def test_rounds_that_cannot_be(keep: int, rounds: int, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        in_rounds(10, keep, rounds)


@pytest.mark.parametrize("rule", [uniform, erk, sratio])
def test_budgets_that_cannot_be(rule: object) -> None:
    assert callable(rule)
    with pytest.raises(OptionError, match="`keep` is a count from 1 to 72; got 73"):
        rule(LAYERS, 73)
    with pytest.raises(OptionError, match="at least one layer"):
        rule({}, 1)


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


@pytest.mark.parametrize("distribution", ["global", "uniform", "erk", "sratio"])
def test_what_a_round_drops_stays_away_whatever_the_layers_share(distribution: str) -> None:
    # One weight fewer in all is 44 instead of 43 for `a` at 876 by `uniform`; at 78 `sratio` takes 0.1 of `e`, not 0.3.
    shapes = {"a": (15, 3), "b": (10, 18), "c": (17, 14), "d": (11, 17), "e": (13, 20)}
    weights = {name: 0.1 + torch.rand(shape) for name, shape in shapes.items()}
    kept = [Mask.all_kept(weights)]

    def score(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        kept.append(Mask({name: value != 0 for name, value in values.items()}))
        return dict(values)

    options = {"rounds": 100, "score": score, "distribution": distribution}
    kept.append(select_in_rounds(weights, 70, **options))  # type: ignore[arg-type]
    assert kept[-1].kept == 70
    assert all((later - earlier).kept == 0 for earlier, later in pairwise(kept))


def test_what_does_not_fit_goes_where_there_is_most_room() -> None:
    scores = {"a": torch.tensor([[4.0, 3.0, 2.0]]), "b": torch.tensor([[1.0, 2.0, 3.0]])}
    left = Mask({"a": torch.tensor([[False, False, True]]), "b": torch.tensor([[True, True, True]])})
    assert select(scores, 4, "uniform").kept_by_layer() == {"a": 2, "b": 2}
    assert select(scores, 4, "uniform", among=left) == left
    assert select(scores, 2, "uniform", among=left)["b"].tolist() == [[False, False, True]]


def test_at_least_keeps_all_equal_ones() -> None:
    scores = {"a": torch.tensor([3.0, 1.0]), "b": torch.tensor([2.0, 2.0])}
    assert Mask.at_least(scores, 1).kept == 1
    assert Mask.at_least(scores, 2).kept == 3
    assert Mask.at_least(scores, 4).kept == 4

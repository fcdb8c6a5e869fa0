"""Moving weights from one place to another, and what an optimizer remembers of them."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hypersparse import (
    ACDC,
    GMP,
    IMP,
    LTH,
    Magnitude,
    Mask,
    Method,
    OptionError,
    PowerProp,
    PrunableWeights,
    TopKAST,
    TrainingState,
)
from hypersparse.methods.drop_grow import draw_mask_, drop_and_grow, drop_and_grow_, prune_by_magnitude, reset_momentum_
from hypersparse.sparsity.distributions import Distribution, shares
from tests.methods.small import sequence_network, three_classes, trained


def one_layer(weights: list[float], kept: list[bool], optimizer: str = "SGD") -> TrainingState:
    layer = nn.Linear(len(weights), 1, bias=False)
    made: torch.optim.Optimizer = (
        torch.optim.SGD(layer.parameters(), lr=1.0, momentum=0.5)
        if optimizer == "SGD"
        else torch.optim.AdamW(layer.parameters(), lr=0.1)
    )
    state = TrainingState(layer, made, PrunableWeights(layer))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights]))
    state.weights.set_mask_(Mask({"weight": torch.tensor([kept])}))
    return state


def kept_of(state: TrainingState) -> list[bool]:
    assert state.weights.mask is not None
    return [bool(kept) for kept in state.weights.mask["weight"][0]]


def test_an_exchange_by_hand() -> None:
    state = one_layer([4.0, -1.0, 2.0, 0.5, 9.0, 9.0, 9.0, 9.0], [True] * 4 + [False] * 4)
    # Half of the four kept ones go: -1 and 0.5. Of the six that are not kept two grow: the just dropped 0.5, whose
    # gradient is the largest, comes back with its value, and the sixth begins at zero.
    growth = {"weight": torch.tensor([[8.0, 1.0, 8.0, 5.0, 2.0, 3.0, 0.0, 1.0]])}
    drop_and_grow_(state, growth, fraction=0.5)
    assert kept_of(state) == [True, False, True, True, False, True, False, False]
    assert state.weights["weight"].tolist() == [[4.0, 0.0, 2.0, 0.5, 0.0, 0.0, 0.0, 0.0]]


def test_what_an_optimizer_did_to_dropped_weights_does_not_grow() -> None:
    state = one_layer([2.0, 1.0, 0.0, 0.0], [True, True, False, False])
    with torch.no_grad():
        state.weights["weight"].add_(0.25)  # as a step in a user's loop, before the mask is applied
    drop_and_grow_(state, {"weight": torch.tensor([[0.0, 0.0, 1.0, 2.0]])}, fraction=0.5)
    assert kept_of(state) == [True, False, False, True]
    assert state.weights["weight"].tolist() == [[2.25, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize(("optimizer", "names"), [("SGD", ["momentum_buffer"]), ("AdamW", ["exp_avg", "exp_avg_sq"])])
def test_what_grows_has_no_momentum(optimizer: str, names: list[str]) -> None:
    state = one_layer([2.0, 1.0, 0.0, 0.0], [True, True, False, False], optimizer)
    weight = state.weights["weight"]
    weight.grad = torch.ones_like(weight)
    state.optimizer.step()
    drop_and_grow_(state, {"weight": torch.tensor([[0.0, 0.0, 1.0, 2.0]])}, fraction=0.5)
    for name in names:
        remembered: Tensor = state.optimizer.state[weight][name]
        assert (remembered != 0).tolist() == [[True, True, True, False]]
    reset_momentum_(state)
    assert all(not state.optimizer.state[weight][name].any() for name in names)
    assert state.optimizer.state[weight].get("step", 0) == 0  # or Adam would take its new moments for long means


@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=2, max_size=30),
    seed=st.integers(0, 1000),
    fraction=st.floats(0, 0.99),
)
def test_counts_are_exact_under_ties(scores: list[float], seed: int, fraction: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(len(scores), generator=generator) < 0.5
    kept[0] = True
    mask = Mask({"a": kept})
    growth = {"a": torch.randint(0, 2, (len(scores),), generator=generator).float()}
    after = drop_and_grow(mask, {"a": torch.tensor(scores)}, growth, fraction=fraction)
    assert after.kept == mask.kept
    staying = after & mask
    assert (mask - staying).kept <= int(fraction * mask.kept)


def test_layers_without_growth_stay() -> None:
    kept = torch.tensor([True, False, True, False])
    mask = Mask({"a": kept, "b": kept})
    scores = {"a": torch.arange(4.0), "b": torch.arange(4.0)}
    after = drop_and_grow(mask, scores, {"b": torch.tensor([0.0, 1.0, 0.0, 0.0])}, fraction=0.5)
    assert torch.equal(after["a"], kept)
    assert after["b"].tolist() == [False, True, True, False]


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the numbers that the host asks a device for."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func._overloadpacket.__name__ in ("_local_scalar_dense", "is_nonzero")
        return func(*args, **(kwargs or {}))


def test_an_exchange_waits_as_often_for_many_layers_as_for_one() -> None:
    counts = []
    for layers in (1, 20):
        mask = Mask({str(number): torch.arange(8) % 2 == 0 for number in range(layers)})
        scores = {name: torch.rand(8) for name in mask}
        with Waits() as waits:  # type: ignore[no-untyped-call]
            drop_and_grow(mask, scores, scores, fraction=0.5)
        counts.append(waits.count)
    assert counts[0] == counts[1] > 0


def test_a_drawn_mask_has_the_budgets_counts_and_comes_from_the_methods_generator() -> None:
    masks = []
    for seed in (0, 0, 1):
        state = one_layer([1.0] * 50, [True] * 50)
        state.generator.manual_seed(seed)
        torch.rand(seed + 3)  # what others draw changes nothing
        draw_mask_(state, {"weight": 20})
        masks.append(kept_of(state))
    assert masks[0] == masks[1] != masks[2]
    assert [sum(kept) for kept in masks] == [20, 20, 20]


def test_what_was_dropped_stays_dropped_when_a_mask_shrinks() -> None:
    state = one_layer([0.0, 0.0, 0.0, 3.0], [False, True, True, True])
    assert prune_by_magnitude(state.weights, 2)["weight"].tolist() == [[False, True, False, True]]


def test_a_mask_shrinks_in_every_layer_or_over_all() -> None:
    weights = PrunableWeights(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    with torch.no_grad():
        weights["1.weight"].add_(9.0)
    assert list(prune_by_magnitude(weights, 8).kept_by_layer().values()) == [0, 8]
    assert list(prune_by_magnitude(weights, 8, "uniform").kept_by_layer().values()) == [4, 4]
    assert list(prune_by_magnitude(weights, 8, "erk").kept_by_layer().values()) == [4, 4]


@pytest.mark.parametrize("distribution", ["uniform", "erk", "sratio"])
@pytest.mark.parametrize("kind", [ACDC, GMP, IMP, LTH, PowerProp, TopKAST])
def test_layers_share_by_a_rule(kind: type[Method], distribution: Distribution) -> None:
    options = {"rounds": 1} if kind is IMP else {"update_every": 2} if kind is TopKAST else {}
    method = kind(sparsity=0.75, distribution=distribution, **options)
    sparsifier = trained(method, sequence_network(), three_classes((2, 8)), epochs=2)
    assert sparsifier.mask is not None
    assert sparsifier.mask.kept == 39
    if kind is not GMP:  # which prunes in rounds, so that a layer may have fewer left than its share
        assert sparsifier.mask.kept_by_layer() == shares(sparsifier.weights, 39, distribution)


@pytest.mark.parametrize("kind", [ACDC, GMP, IMP, LTH, Magnitude, PowerProp])
def test_shares_that_cannot_be_are_said_before_any_training(kind: type[Method]) -> None:
    with pytest.raises(OptionError, match="the last layer keeps 4 of its 48 weights, but only 2 can be kept"):
        trained(kind(sparsity=0.99, distribution="sratio"), sequence_network(), [], epochs=2)

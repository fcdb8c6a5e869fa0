"""What the one-shot methods have in common: a mask before the first step, on any network, and nothing else changed."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from hypersparse import (
    SNIP,
    GraSP,
    IterSNIP,
    LoopError,
    Magnitude,
    Method,
    OptionError,
    Random,
    SRatio,
    SynFlow,
    Task,
    methods,
)
from hypersparse.recipe import Recipe, resolve
from hypersparse.sparsity.distributions import keep_count
from tests.methods.small import cross_entropy, perceptron, sequence_network, state_of, three_classes, trained

ALL: dict[str, Any] = {
    "snip": SNIP(sparsity=0.8),
    "grasp": GraSP(sparsity=0.8),
    "sratio": SRatio(sparsity=0.8),
    "random": Random(sparsity=0.8),
    "synflow": SynFlow(sparsity=0.8, rounds=5),
    "iter_snip": IterSNIP(sparsity=0.8, rounds=5),
}
ON_DATA = ["snip", "grasp", "iter_snip"]


def test_every_file_of_the_family_is_here() -> None:
    plans = {name: methods.find(name)().plan(4) for name in methods.names()}
    first = {name: getattr(plan[0].on_enter, "__name__", "") for name, plan in plans.items()}
    assert set(ALL) == {name for name, action in first.items() if action == "prune"}


@pytest.mark.parametrize("name", ALL)
def test_the_plan_is_one_phase_of_training(name: str) -> None:
    (phase,) = ALL[name].plan(7)
    assert (phase.name, phase.epochs, phase.lr.held, phase.reset_optimizer) == ("train", 7, False, False)
    assert phase.cache_key is None
    assert phase.requires.task == (name in (*ON_DATA, "synflow"))


@pytest.mark.parametrize("name", ALL)
def test_nothing_but_dropped_weights_changes_when_the_mask_is_made(name: str) -> None:
    model = sequence_network()
    state = state_of(model, Task(cross_entropy, three_classes((2, 8))))
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    ALL[name].plan(1)[0].on_enter(state)
    mask = state.weights.mask
    assert mask is not None
    assert mask.kept == keep_count(state.weights.total, 0.8)
    for key, tensor in model.state_dict().items():
        expected = before[key].masked_fill(~mask[key], 0.0) if key in mask else before[key]
        assert torch.equal(tensor, expected), key
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("distribution", ["global", "uniform", "erk", "sratio"])
@pytest.mark.parametrize("kind", [SNIP, GraSP, Random, SynFlow, IterSNIP, Magnitude])
def test_distributions(kind: type[Method], distribution: str) -> None:
    rounds = {"rounds": 3} if kind in (SynFlow, IterSNIP) else {}
    method = kind(sparsity=0.75, distribution=distribution, **rounds)
    sparsifier = trained(method, sequence_network(), three_classes((2, 8)), epochs=1)
    assert sparsifier.mask is not None
    assert sparsifier.mask.kept == keep_count(sparsifier.weights.total, 0.75)
    kept = sparsifier.mask.kept_by_layer()
    if distribution == "uniform":
        assert list(kept.values()) == [9, 18, 12]  # a quarter of 36, 72, 48
    if distribution == "sratio":
        assert kept["6.weight"] == int(0.3 * 48)


@pytest.mark.parametrize("name", ALL)
def test_a_perceptron_and_convolutions_over_time(name: str) -> None:
    for model, shape in ((perceptron(), (6,)), (sequence_network(), (2, 8))):
        sparsifier = trained(ALL[name], model, three_classes(shape))
        total = sparsifier.weights.total
        assert int(sparsifier.weights.vector().count_nonzero()) <= keep_count(total, 0.8)


@pytest.mark.parametrize("name", ["random", "sratio", "grasp"])
def test_what_is_drawn_comes_from_the_states_generator(name: str) -> None:
    task = Task(cross_entropy, three_classes((2, 8)))
    masks = []
    for seed, disturbed in ((0, False), (0, True), (1, False)):
        state = state_of(sequence_network(), task, seed=seed)
        if disturbed:
            torch.rand(10)
        masks.append(ALL[name].mask(state))
    assert masks[0] == masks[1]
    assert masks[0] != masks[2]


@pytest.mark.parametrize("name", ["snip", "grasp", "synflow", "iter_snip"])
def test_without_a_task_it_says_so(name: str) -> None:
    state = state_of(perceptron())
    with pytest.raises(LoopError, match="pass `task=Task"):
        ALL[name].mask(state)


@pytest.mark.parametrize("name", ON_DATA)
def test_the_samples_can_be_chosen(name: str) -> None:
    seen: list[int] = []

    def criterion(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(len(labels))
        return cross_entropy(outputs, labels)

    task = Task(criterion, three_classes())
    for options, sizes in (({}, {30}), ({"per_class": 2, "passes": 3}, {6}), ({"data": "batch"}, {16})):
        seen.clear()
        rounds = {"rounds": 1} if name == "iter_snip" else {}
        methods.find(name)(sparsity=0.5, **options, **rounds).mask(state_of(perceptron(), task))  # type: ignore[attr-defined]
        halved = {size // 2 for size in sizes} if name == "grasp" else sizes
        assert set(seen) == halved


@pytest.mark.parametrize("name", [*ALL, "magnitude"])
@pytest.mark.parametrize("data", ["digits", "cifar10", "tinyimagenet"])
def test_recipes_survive_toml(name: str, data: str) -> None:
    recipe = resolve({"data": {"name": data}, "method": {"name": name, "sparsity": 0.9}})
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert f"{name}-0.9" in recipe.label
    if data == "tinyimagenet" and name in ON_DATA:
        assert (recipe.method.per_class, recipe.method.passes) == (1, 10)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [SNIP, GraSP])
def test_the_authors_count_is_for_all_layers_together(kind: type[Method]) -> None:
    with pytest.raises(OptionError, match="tie_rule='authors' is a rule over all layers"):
        kind(tie_rule="authors", distribution="erk")


def test_a_network_in_float64() -> None:
    model = sequence_network().double()
    batches = [(inputs.double(), labels) for inputs, labels in three_classes((2, 8))]
    for name in ALL:
        assert ALL[name].mask(state_of(model, Task(cross_entropy, batches))).kept == keep_count(156, 0.8)


def test_scores_on_a_shared_linear_layer() -> None:
    """Tied weights are one layer, scored once."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(6, 6)
            self.two = self.one
            self.last = nn.Linear(6, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.last(self.two(self.one(inputs).relu()).relu())  # type: ignore[no-any-return]

    for method in ALL.values():
        mask = method.mask(state_of(Tied(), Task(cross_entropy, three_classes())))
        assert list(mask) == ["one.weight", "last.weight"]
        assert mask.kept == keep_count(54, 0.8)


@pytest.mark.parametrize("kind", [SNIP, IterSNIP, partial(GraSP, redraw_linear=False), SynFlow])
def test_scores_that_are_all_zero_choose_nothing(kind: Any) -> None:
    model = perceptron()
    with torch.no_grad():
        model[3].weight.zero_()  # type: ignore[operator]
        model[0].weight.zero_()  # type: ignore[operator]
    with pytest.raises(OptionError, match="All scores are 0, so that no mask is better than another"):
        trained(kind(sparsity=0.8), model, three_classes())

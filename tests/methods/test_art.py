"""ART: its plan, its penalty, which epoch it remembers, when it stops, and what it prunes."""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import hypersparse
from hypersparse import ART, Mask, Sparsifier, Task, TrainingState
from hypersparse.errors import LoopError
from hypersparse.sparsifier import plan_of
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights

cross_entropy = nn.functional.cross_entropy


def three_classes() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(48) % 3
    inputs = torch.randn(3, 6, generator=generator)[labels] + 0.3 * torch.randn(48, 6, generator=generator)
    return list(zip(inputs.split(16), labels.split(16), strict=True))


def small_network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


class Scripted:
    """A task that scores what it was told to, and writes down what it saw of the model."""

    rating = staticmethod(lambda outputs, labels: torch.tensor(0.0))

    def __init__(self, *scores: float) -> None:
        self.scores = iter(scores)
        self.nonzero: list[int] = []

    def score(self, model: nn.Module) -> float:
        weights = PrunableWeights(model)
        self.nonzero.append(int(weights.vector().count_nonzero()))
        return next(self.scores)


def attached(method: ART, task: Any, epochs: int = 1, **options: Any) -> Sparsifier:
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    return hypersparse.attach(model, optimizer, method, epochs=epochs, task=task, **options)


def train_epoch(sparsifier: Sparsifier, *, observe: bool = False) -> None:
    model, optimizer = sparsifier.state.model, sparsifier.state.optimizer
    model.train()
    for inputs, labels in three_classes():
        outputs = model(inputs)
        loss = cross_entropy(outputs, labels) + sparsifier.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sparsifier.step()
        if observe:
            sparsifier.observe(outputs, labels)


def trained(method: ART, task: Any, *, observe: bool = False, epochs: int = 1) -> Sparsifier:
    sparsifier = attached(method, task, epochs)
    for _ in sparsifier.epochs():
        train_epoch(sparsifier, observe=observe)
    return sparsifier


def state_of(task: Any = None) -> TrainingState:
    model = small_network()
    return TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1), PrunableWeights(model), given_task=task)


@pytest.fixture
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


# The plan


def test_the_plan() -> None:
    plan = ART(pretrain_epochs=7, max_regularized_epochs=9).plan(5)
    assert [(phase.name, phase.epochs) for phase in plan] == [("pre-train", 7), ("regularize", 9), ("fine-tune", 5)]
    assert [phase.hold_lr for phase in plan] == [True, True, False]
    assert [phase.restart for phase in plan] == [False, False, True]
    assert [phase.penalty is not None for phase in plan] == [False, True, False]


def test_without_pre_training() -> None:
    assert [phase.name for phase in ART(pretrain_epochs=0).plan(5)] == ["regularize", "fine-tune"]
    assert [phase.name for phase in plan_of(ART(), epochs=5, trained=True)] == ["regularize", "fine-tune"]


def test_the_papers_options_are_the_defaults() -> None:
    method = ART()
    assert (method.pretrain_epochs, method.strength, method.growth) == (60, 5e-6, 1.05)
    assert (method.penalty, method.select, method.count) == ("hypersparse", "single", "exact")
    assert ART(sparsity=0.98).label() == "art-hypersparse-0.98"


# The penalty


def test_the_strength_grows_by_a_factor_every_epoch() -> None:
    sparsifier = attached(
        ART(sparsity=0.5, penalty="l1", pretrain_epochs=1, strength=0.25, growth=2, max_regularized_epochs=4),
        Scripted(*[0.1, 0.9] * 4),
    )
    seen, logged = [], []
    for _ in range(4):
        assert sparsifier.begin_epoch()
        sparsifier.state.optimizer.zero_grad()
        sparsifier.add_penalty_gradient_()
        grad = sparsifier.weights["0.weight"].grad
        seen.append(0.0 if grad is None else grad.abs().max().item())
        sparsifier.step()
        sparsifier.finish_epoch()
        logged.append(sparsifier.log.get("strength"))
    assert seen == [0.0, 0.25, 0.5, 1.0]
    assert logged == [None, 0.25, 0.5, 1.0]


def test_the_hypersparse_penalty_spares_as_many_as_are_kept() -> None:
    state = state_of()
    method = ART(sparsity=0.75, strength=2.0)
    method.weighted_penalty(state).backward()  # type: ignore[no-untyped-call]
    grads = torch.cat([weight.grad.flatten() for weight in state.weights.values() if weight.grad is not None])
    expected = 2.0 * hypersparse.penalties.hypersparse_grad(state.weights.vector(), 27)  # of 108
    torch.testing.assert_close(grads, expected)


# Which epoch is remembered


def remembered(method: ART, scores: list[float]) -> list[tuple[int, float, float]]:
    state, found = state_of(), []
    for epoch, score in enumerate(scores):
        state.epoch = epoch
        best = method.remember(state, score, {"of epoch": epoch})
        assert best["copy"] == {"of epoch": best["epoch"]}
        assert best is state.memory["best"]
        found.append((best["epoch"], best["single"], round(best["mean"], 4)))
    return found


def test_the_best_is_the_middle_of_three_and_compared_by_its_own_score() -> None:
    assert remembered(ART(select="single"), [0.5, 0.3, 0.9, 0.2, 0.8]) == [
        (0, 0.5, 0.5),
        (0, 0.5, 0.5),  # average 0.4 is not above 0.5
        (1, 0.3, 0.5667),  # 0.5667 is above 0.5: the middle of the three, whose own score is 0.3
        (2, 0.9, 0.4667),  # 0.4667 is above 0.3
        (2, 0.9, 0.4667),  # 0.6333 is not above 0.9
    ]


def test_the_best_by_mean_is_compared_with_the_mean() -> None:
    assert remembered(ART(select="mean"), [0.5, 0.3, 0.9, 0.2, 0.8]) == [
        (0, 0.5, 0.5),
        (0, 0.5, 0.5),
        (1, 0.3, 0.5667),
        (1, 0.3, 0.5667),  # 0.4667 is not above 0.5667
        (3, 0.2, 0.6333),
    ]


def test_of_two_epochs_the_newer_is_the_best() -> None:
    assert remembered(ART(), [0.5, 0.7]) == [(0, 0.5, 0.5), (1, 0.7, 0.6)]


def test_scores_may_be_negative() -> None:
    assert remembered(ART(), [-9.0, -4.0, -5.0])[-1] == (1, -4.0, -6.5)


@given(scores=st.lists(st.integers(1, 20).map(lambda n: n / 20), min_size=1, max_size=12))
def test_remembering_agrees_with_the_authors_code(scores: list[float]) -> None:
    buffer: list[tuple[int, float]] = []
    best_epoch, best_single, best_mean = -1, 0.0, 0.0
    expected = []
    for epoch, score in enumerate(scores):  # facts 2.4
        buffer = [*buffer, (epoch, score)][-3:]
        average = sum(single for _, single in buffer) / len(buffer)
        if average > best_single + 1e-12:
            best_epoch, best_single = buffer[min(len(buffer) - 1, 1)]
            best_mean = average
        expected.append((best_epoch, best_single, round(best_mean, 4)))
    assert remembered(ART(), scores) == expected


# When it stops


def test_by_the_paper_the_dense_network_is_scored_like_the_pruned_one() -> None:
    task = Scripted(0.5, 0.6, 0.7, 0.6)
    state = state_of(task)
    method = ART(sparsity=0.75, stop="paper")
    state.observed.add(torch.tensor([0.0]), 1)  # not asked
    assert not method.pruning_is_free(state)
    state.epoch = 1
    assert method.pruning_is_free(state)  # (0.5 + 0.7) / 2 = 0.6
    assert task.nonzero == [27, 108, 27, 108]
    assert state.log["pruned_score"] == 0.7
    assert state.log["dense_score"] == 0.6
    assert state.log["best_score"] == pytest.approx(0.6)
    assert (state.log["best_epoch"], sum(state.log["kept_by_layer"])) == (1, 27)


def test_the_average_of_the_best_must_reach_the_dense_score_not_its_own() -> None:
    state = state_of(Scripted(0.3, 1.0, 0.9, 0.7))
    method = ART(sparsity=0.75, stop="paper")
    method.pruning_is_free(state)
    state.epoch = 1
    assert not method.pruning_is_free(state)  # its own score is 0.9, its average 0.6
    assert (state.log["best_epoch"], state.log["best_score"]) == (1, pytest.approx(0.6))


@pytest.mark.parametrize("stop", ["code", "auto"])
def test_by_the_code_the_score_seen_while_training_counts(stop: str) -> None:
    for seen, free in ((0.75, False), (0.5, True), (0.25, True)):
        task = Scripted(0.5)  # a second score would raise StopIteration
        state = state_of(task)
        state.observed.add(torch.tensor([seen]), 1)
        assert ART(sparsity=0.75, stop=stop).pruning_is_free(state) is free
        assert state.log["dense_score"] == seen
        assert task.nonzero == [27]


def test_auto_scores_the_dense_network_where_nothing_was_seen() -> None:
    task = Scripted(0.5, 0.6)
    state = state_of(task)
    assert not ART(sparsity=0.75).pruning_is_free(state)
    assert task.nonzero == [27, 108]


def test_by_the_code_without_observe_is_an_error_in_the_first_epoch() -> None:
    sparsifier = attached(ART(sparsity=0.75, stop="code", pretrain_epochs=5), Scripted())
    sparsifier.begin_epoch()
    train_epoch(sparsifier)
    with pytest.raises(LoopError, match=r"call `sparsifier\.observe\(outputs, labels\)` in every step"):
        sparsifier.finish_epoch()
    assert sparsifier.total_epoch == 0


def test_scoring_the_pruned_copy_leaves_the_weights_free() -> None:
    state = state_of(Scripted(0.5, 0.6))
    before = state.weights.vector().clone()
    ART(sparsity=0.75).pruning_is_free(state)
    assert torch.equal(state.weights.vector(), before)
    assert state.weights.mask is None
    kept = before.abs().sort(descending=True).values
    assert state.log["w_kappa"] == kept[26].item()


def test_a_forgotten_epoch_of_seeing_does_not_count_for_the_next() -> None:
    sparsifier = attached(ART(sparsity=0.5, pretrain_epochs=0, max_regularized_epochs=3), Scripted(0.5, 0.5, 0.9, 0.9))
    for observe in (True, False):
        assert sparsifier.begin_epoch()
        train_epoch(sparsifier, observe=observe)
        assert (sparsifier.state.observed.count > 0) == observe
        if observe:
            sparsifier.state.observed.total.fill_(48.0)  # a dense score of 1
        sparsifier.finish_epoch()


# What it prunes


def pruned(model: nn.Module, keep: int) -> nn.Module:
    model = copy.deepcopy(model)
    weights = PrunableWeights(model)
    weights.set_mask_(Mask.top(magnitude(weights), keep))
    return model


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.9, 0.1, 0.1], 0),  # the averages 0.5 and 0.37 are not above 0.9
        ([0.1, 0.9, 0.1], 1),
        ([0.1, 0.2, 0.9], 1),  # the middle one, though the last is better
    ],
)
@pytest.mark.usefixtures("quietly")
def test_the_best_copy_comes_back_with_its_statistics(scores: list[float], best: int) -> None:
    with_dense = [score for pair in zip(scores, [1.0] * 3, strict=True) for score in pair]
    sparsifier = attached(ART(sparsity=0.75, pretrain_epochs=1, max_regularized_epochs=3), Scripted(*with_dense))
    ends: list[nn.Module] = []
    for _ in sparsifier.epochs():
        if sparsifier.phase.name == "fine-tune":
            break
        train_epoch(sparsifier)
        ends.append(copy.deepcopy(sparsifier.state.model))
    expected = pruned(ends[1 + best], keep=27).state_dict()
    found = sparsifier.state.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert int(found["1.num_batches_tracked"]) == 3 * (best + 2)  # three steps an epoch
    assert sparsifier.state.memory == {"pruned_at": best}


@pytest.mark.parametrize(("count", "kept"), [("exact", 27), ("authors", 26)])
def test_how_many_are_kept(count: str, kept: int) -> None:
    sparsifier = trained(ART(sparsity=0.75, pretrain_epochs=0, count=count), Scripted(1.0, 1.0))
    assert sparsifier.mask is not None
    assert sparsifier.mask.kept == kept
    assert int(sparsifier.weights.vector().count_nonzero()) == kept


def test_momentum_is_kept_for_the_penalty_and_new_for_the_fine_tuning() -> None:
    sparsifier = attached(ART(sparsity=0.75, pretrain_epochs=1), Scripted(0.1, 0.9, 0.9, 0.1), epochs=2)
    optimizer = sparsifier.state.optimizer
    momentum: list[tuple[str, Tensor | None]] = []
    last: dict[str, Tensor] = {}
    for _ in sparsifier.epochs():
        state = optimizer.state.get(sparsifier.weights["0.weight"], {})
        found = state.get("momentum_buffer")
        momentum.append((sparsifier.phase.name, found))
        if sparsifier.phase.name == "regularize":
            assert found is not None
            assert torch.equal(found, last["momentum"])
        train_epoch(sparsifier)
        last["momentum"] = optimizer.state[sparsifier.weights["0.weight"]]["momentum_buffer"].clone()
    names = ["pre-train", "regularize", "regularize", "fine-tune", "fine-tune"]
    assert [name for name, _ in momentum] == names
    assert [found is None for _, found in momentum] == [True, False, False, True, False]


def test_a_phase_that_had_to_end_warns() -> None:
    method = ART(sparsity=0.75, pretrain_epochs=0, max_regularized_epochs=2)
    with pytest.warns(
        UserWarning, match=r"still cost accuracy after 2 regularized epochs.*Raise max_regularized_epochs"
    ):
        sparsifier = trained(method, Scripted(0.1, 0.9, 0.1, 0.9))
    assert sparsifier.total_epoch == 3
    assert sparsifier.mask is not None


def test_pruning_that_is_free_in_the_last_epoch_does_not_warn() -> None:
    trained(ART(sparsity=0.75, pretrain_epochs=0, max_regularized_epochs=2), Scripted(0.1, 0.9, 0.9, 0.2))


@pytest.mark.parametrize("penalty", ["hypersparse", "l1", "l2"])
@pytest.mark.parametrize("observe", [True, False])
def test_every_penalty_ends_with_a_network_that_still_works(penalty: str, observe: bool) -> None:
    task = Task(cross_entropy, three_classes())
    method = ART(
        sparsity=0.75, penalty=penalty, pretrain_epochs=3, strength=1e-3, growth=1.3, max_regularized_epochs=40
    )
    sparsifier = trained(method, task, observe=observe, epochs=4)
    assert sparsifier.mask is not None
    assert sparsifier.mask.kept == 27
    assert task.score(sparsifier.state.model) > 0.9


def test_a_regression() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(40, 5, generator=generator)
    targets = inputs[:, :1] - 2 * inputs[:, 1:2]  # two inputs of five matter
    rating: Callable[[Tensor, Tensor], Tensor] = lambda outputs, wanted: -(outputs - wanted).square().mean()  # noqa: E731
    task = Task(nn.functional.mse_loss, [(inputs, targets)], rating=rating)
    model = nn.Sequential(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = ART(sparsity=0.6, pretrain_epochs=10, strength=1e-2, growth=1.2, max_regularized_epochs=60)
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=60, task=task)
    dense_scores = []
    for _ in sparsifier.epochs():
        loss = nn.functional.mse_loss(model(inputs), targets) + sparsifier.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sparsifier.step()
        dense_scores.append(sparsifier.log.get("dense_score"))
    assert sparsifier.mask is not None
    assert sparsifier.mask["0.weight"].tolist() == [[True, True, False, False, False]]
    assert task.score(model) > -1e-3
    assert sparsifier.total_epoch < 10 + 60 + 60  # pruning became free


def test_a_rating_is_whatever_the_task_says() -> None:
    task = cast(Any, Scripted(0.9, 0.2))
    sparsifier = trained(ART(sparsity=0.75, pretrain_epochs=0), task)
    assert sparsifier.total_epoch == 2

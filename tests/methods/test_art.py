"""ART: its plan, its penalty, which epoch it remembers, and when it stops."""

import math
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import hypersparse
from hypersparse import ART, Sparsifier
from hypersparse.errors import LoopError
from hypersparse.methods.art import PrunedCopies
from hypersparse.methods.phase_plan import plan_of
from tests.methods.scripted import Scripted, attached, state_of, train_epoch

# The plan


def test_the_plan() -> None:
    plan = ART(pretrain_epochs=7, max_regularized_epochs=9).plan(5)
    assert [(phase.name, phase.epochs) for phase in plan] == [("pre-train", 7), ("regularize", 9), ("fine-tune", 5)]
    assert [phase.lr.held for phase in plan] == [True, True, False]
    assert [phase.reset_optimizer for phase in plan] == [False, False, True]
    assert [phase.rules.penalty is not None for phase in plan] == [False, True, False]


def test_without_pre_training() -> None:
    assert [phase.name for phase in ART(pretrain_epochs=0).plan(5)] == ["regularize", "fine-tune"]
    assert [phase.name for phase in plan_of(ART(), epochs=5, trained=True)] == ["regularize", "fine-tune"]


def test_the_papers_options_are_the_defaults() -> None:
    method = ART()
    assert (method.pretrain_epochs, method.strength, method.growth) == (60, 5e-6, 1.05)
    assert (method.penalty, method.best_by, method.tie_rule) == ("hypersparse", "single", "exact")
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
        sparsifier.state.optimizer.step()
        grad = sparsifier.weights["0.weight"].grad
        seen.append(0.0 if grad is None else grad.abs().max().item())
        sparsifier.finish_epoch()
        logged.append(sparsifier.log.get("strength"))
    assert seen == [0.0, 0.25, 0.5, 1.0]
    assert logged == [None, 0.25, 0.5, 1.0]


def test_the_hypersparse_penalty_spares_as_many_as_are_kept() -> None:
    state = state_of()
    method = ART(sparsity=0.75, strength=2.0)
    method.weighted_penalty(state, state.weights.vector()).backward()  # type: ignore[no-untyped-call]
    grads = torch.cat([weight.grad.flatten() for weight in state.weights.values() if weight.grad is not None])
    expected = 2.0 * hypersparse.penalties.hypersparse_grad(state.weights.vector(), 27)  # of 108
    torch.testing.assert_close(grads, expected)


def one_layer(method: ART) -> Sparsifier:
    layer = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[4.0, -2.0, 1.0, 0.5]]))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    return hypersparse.attach(layer, optimizer, method, epochs=1, task=cast(Any, Scripted()))


def gradients_of_steps(sparsifier: Sparsifier, steps: int) -> list[tuple[Tensor, Tensor]]:
    """The weights before each step, which is the penalty's alone, and the gradient that it makes."""
    sparsifier.begin_epoch()
    weight, found = sparsifier.weights["weight"], []
    for _ in range(steps):
        before = weight.detach().clone()
        sparsifier.state.optimizer.zero_grad()
        sparsifier.state.optimizer.step()
        assert weight.grad is not None
        found.append((before[0], weight.grad.clone()[0]))
    return found


def by_hand(weights: Tensor, smallest: float) -> list[float]:
    s = math.atanh(1 / math.sqrt(3)) / smallest
    sizes = weights.abs().tolist()
    height = s * sum(sizes) / sum(math.tanh(s * size) for size in sizes)
    return [
        math.copysign((1 - math.tanh(s * size) ** 2) * height, weight)
        for size, weight in zip(sizes, weights.tolist(), strict=True)
    ]


def test_the_smallest_weight_that_stays_is_found_in_every_step() -> None:
    for weights, gradient in gradients_of_steps(one_layer(ART(sparsity=0.5, strength=1.0, pretrain_epochs=0)), 3):
        smallest = float(weights.abs().sort().values[2])
        assert gradient.tolist() == pytest.approx(by_hand(weights, smallest), rel=1e-4)


# Which epoch is remembered


def remembered(method: ART, scores: list[float]) -> list[tuple[int, float, float]]:
    copies, found = PrunedCopies(), []
    for epoch, score in enumerate(scores):
        best = method.remember(copies, score, {"of epoch": epoch}, epoch=epoch)
        assert best.copy == {"of epoch": best.epoch}
        assert best is copies.best
        found.append((best.epoch, best.single, round(best.mean, 4)))
    return found


def test_the_best_is_the_middle_of_three_and_compared_by_its_own_score() -> None:
    assert remembered(ART(best_by="single"), [0.5, 0.3, 0.9, 0.2, 0.8]) == [
        (0, 0.5, 0.5),
        (0, 0.5, 0.5),  # average 0.4 is not above 0.5
        (1, 0.3, 0.5667),  # 0.5667 is above 0.5: the middle of the three, whose own score is 0.3
        (2, 0.9, 0.4667),  # 0.4667 is above 0.3
        (2, 0.9, 0.4667),  # 0.6333 is not above 0.9
    ]


def test_the_best_by_mean_is_compared_with_the_mean() -> None:
    assert remembered(ART(best_by="mean"), [0.5, 0.3, 0.9, 0.2, 0.8]) == [
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
    method = ART(sparsity=0.75, stop_reference="paper")
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
    method = ART(sparsity=0.75, stop_reference="paper")
    method.pruning_is_free(state)
    state.epoch = 1
    assert not method.pruning_is_free(state)  # its own score is 0.9, its average 0.6
    assert (state.log["best_epoch"], state.log["best_score"]) == (1, pytest.approx(0.6))


def test_by_the_first_release_its_own_score_must_reach_the_score_seen_while_training() -> None:
    state = state_of(Scripted(0.3, 0.9))
    method = ART(sparsity=0.75, stop_reference="first_release")
    state.observed.add(torch.tensor([0.8]), 1)
    assert not method.pruning_is_free(state)
    state.epoch = 1
    assert method.pruning_is_free(state)  # its own score is 0.9, its average 0.6
    assert (state.log["best_epoch"], state.log["best_score"]) == (1, pytest.approx(0.6))
    assert [phase.requires.observe for phase in method.plan(1)] == [False, True, False]


@pytest.mark.parametrize("stop", ["code", "auto"])
def test_by_the_code_the_score_seen_while_training_counts(stop: str) -> None:
    for seen, free in ((0.75, False), (0.5, True), (0.25, True)):
        task = Scripted(0.5)  # a second score would raise StopIteration
        state = state_of(task)
        state.observed.add(torch.tensor([seen]), 1)
        assert ART(sparsity=0.75, stop_reference=stop).pruning_is_free(state) is free
        assert state.log["dense_score"] == seen
        assert task.nonzero == [27]


def test_auto_scores_the_dense_network_where_nothing_was_seen() -> None:
    task = Scripted(0.5, 0.6)
    state = state_of(task)
    assert not ART(sparsity=0.75).pruning_is_free(state)
    assert task.nonzero == [27, 108]


def test_by_the_code_without_observe_is_an_error_in_the_first_epoch() -> None:
    sparsifier = attached(ART(sparsity=0.75, stop_reference="code", pretrain_epochs=5), Scripted())
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

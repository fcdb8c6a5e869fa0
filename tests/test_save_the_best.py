"""Saving the best network: `Task.best` never takes a dense one."""

import copy

from torch import nn

from hypersparse import GMP, Fixed, Mask, PrunableWeights, Sparsifier, Task
from hypersparse.sparsity.scores import magnitude
from tests.plain_loop import attached, batches, cross_entropy, is_sparse, network, train_epoch


def prune(model: nn.Module) -> Mask:
    return Mask.top(magnitude(PrunableWeights(model)), 22)


def scores_of(sparsifier: Sparsifier, values: list[float]) -> list[bool]:
    """What `best` says of scores that are made up, one in every epoch."""
    task = Task(cross_entropy, batches()[:1], metric=lambda *_: values.pop(0))
    answers = []
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
        answers.append(task.best(sparsifier))
    return answers


def test_the_best_of_the_sparse_networks() -> None:
    sparsifier = attached(method=GMP(sparsity=0.8, start=0.0), epochs=6)
    values = [0.5, 0.5, 0.7, 0.6]
    # Final from the fourth epoch on: the dense networks before are not even scored.
    assert scores_of(sparsifier, values) == [False, False, False, True, False, True]
    assert values == [0.6]


def test_with_art_the_first_is_of_the_fine_tuning() -> None:
    sparsifier = attached()
    answers = []
    task = Task(cross_entropy, batches())
    saved = None
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
        if task.best(sparsifier):
            answers.append(sparsifier.phase.name)
            saved = copy.deepcopy(sparsifier.state.model.state_dict())
    assert answers
    assert set(answers) == {"fine-tune"}
    assert saved is not None
    sparsifier.state.model.load_state_dict(saved)
    assert is_sparse(sparsifier)


def answer(sparsifier: Sparsifier, score: float) -> bool:
    return Task(cross_entropy, batches()[:1], metric=lambda *_: score).best(sparsifier)


def test_the_best_score_is_saved_with_the_plan() -> None:
    method = Fixed(prune(network()))
    first, second = attached(method=method), attached(network(1), method=method)
    assert not answer(first, 0.8), "no epoch has begun, and no mask is set"
    first.begin_epoch()
    assert answer(first, 0.8)
    second.load_state_dict(first.state_dict())
    assert not answer(second, 0.8)
    assert answer(second, 0.9)

"""ART: what it prunes, with which weights it goes on, and that the network still works."""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import ART, Mask, PrunableWeights, Task
from hypersparse.sparsity.scores import magnitude
from tests.methods.scripted import Scripted, attached, train_epoch, trained
from tests.methods.small import cross_entropy, three_classes


@pytest.fixture
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


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
    assert sparsifier.state.memory.state_dict() == {}


@pytest.mark.parametrize(("count", "kept"), [("exact", 27), ("authors", 26)])
def test_how_many_are_kept(count: str, kept: int) -> None:
    sparsifier = trained(ART(sparsity=0.75, pretrain_epochs=0, tie_rule=count), Scripted(1.0, 1.0))
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
    task = Task(nn.functional.mse_loss, [(inputs, targets)], metric=rating)
    model = nn.Sequential(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = ART(sparsity=0.6, pretrain_epochs=10, strength=1e-2, growth=1.2, max_regularized_epochs=60)
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=60, task=task)
    dense_scores = []
    for _ in sparsifier.epochs():
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dense_scores.append(sparsifier.log.get("dense_score"))
    assert sparsifier.mask is not None
    assert sparsifier.mask["0.weight"].tolist() == [[True, True, False, False, False]]
    assert task.score(model) > -1e-3
    assert sparsifier.total_epoch < 10 + 60 + 60  # pruning became free


def test_a_rating_is_whatever_the_task_says() -> None:
    task = cast(Any, Scripted(0.9, 0.2))
    sparsifier = trained(ART(sparsity=0.75, pretrain_epochs=0), task)
    assert sparsifier.total_epoch == 2

"""ART: what is not in the paper, to be tried at equal epochs."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from hypersparse import ART, Task
from hypersparse.recipe import merge, resolve
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.methods.scripted import Scripted, attached, train_epoch
from tests.methods.small import cross_entropy, perceptron, three_classes
from tests.training.small import TABLES, StopAfter, small

VARIANTS = [
    {"method": {"reestimate": 2}},
    {"method": {"regularized_lr": 0.5}},
    {"method": {"growth_steps": 4}},
    {"method": {"growth_steps": 4, "refresh_every": 2}},
    {"method": {"stop_reference": "paper"}},
    {"method": {"best_by": "mean"}},
    {"training": {"schedule": "cosine"}},
]


def test_the_strength_may_grow_in_every_step() -> None:
    method = ART(sparsity=0.5, penalty="l1", pretrain_epochs=0, strength=0.25, growth=4, growth_steps=2)
    sparsifier = attached(method, Scripted(*[0.1, 0.9] * 2))
    seen, logged = [], []
    for _ in range(2):
        sparsifier.begin_epoch()
        for _ in range(3):
            sparsifier.state.optimizer.zero_grad()
            sparsifier.penalty().backward()
            grad = sparsifier.weights["0.weight"].grad
            assert grad is not None
            seen.append(grad.abs().max().item())
            sparsifier.state.optimizer.step()
            sparsifier.step()
        sparsifier.finish_epoch()
        logged.append(sparsifier.log["strength"])
    assert seen == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]  # the root of 4 in every step, over epochs too
    assert logged == [2.0, 16.0]


def test_steps_are_forgotten_with_the_pruning() -> None:
    method = ART(sparsity=0.5, pretrain_epochs=0, growth_steps=2, refresh_every=2)
    sparsifier = attached(method, Scripted(0.9, 0.1))
    sparsifier.begin_epoch()
    train_epoch(sparsifier)
    assert sparsifier.state.memory["regularized_steps"] == 3
    sparsifier.finish_epoch()
    assert sparsifier.state.memory == {"pruned_at": 0}


def test_the_regularized_phase_may_have_another_rate() -> None:
    method = ART(sparsity=0.5, pretrain_epochs=1, max_regularized_epochs=1, regularized_lr=0.5)
    sparsifier = attached(method, Scripted(0.9, 0.1))
    rates = []
    for _ in sparsifier.epochs():
        rates.append((sparsifier.phase.name, sparsifier.lr))
        train_epoch(sparsifier)
    assert rates == [("pre-train", 0.05), ("regularize", 0.025), ("fine-tune", 0.05)]


@pytest.mark.parametrize("batches", [0, 2])
def test_the_pruned_copy_may_have_statistics_of_its_own(batches: int) -> None:
    method = ART(sparsity=0.75, pretrain_epochs=0, max_regularized_epochs=1, reestimate=batches, stop_reference="paper")
    sparsifier = attached(method, Task(cross_entropy, three_classes(), metric=lambda *_: torch.tensor(1.0)))
    sparsifier.begin_epoch()
    train_epoch(sparsifier)
    dense = {name: buffer.clone() for name, buffer in sparsifier.state.model.named_buffers()}
    sparsifier.finish_epoch()
    found = dict(sparsifier.state.model.named_buffers())
    if not batches:
        assert all(torch.equal(found[name], dense[name]) for name in dense)
        return
    model = perceptron()
    model.load_state_dict(sparsifier.state.model.state_dict())  # pruned by now
    seen = [model[0](inputs).mean(0) for inputs, _ in three_classes()[:batches]]
    assert torch.allclose(found["1.running_mean"], torch.stack(seen).mean(0), atol=1e-6)
    assert not torch.allclose(found["1.running_mean"], dense["1.running_mean"], atol=1e-3)
    assert found["1.num_batches_tracked"] == batches


def test_the_dense_network_keeps_its_statistics() -> None:
    method = ART(sparsity=0.75, pretrain_epochs=0, max_regularized_epochs=5, reestimate=2, stop_reference="code")
    scores = iter([0.1, 0.2])
    task = Task(cross_entropy, three_classes(), metric=lambda *_: torch.tensor(next(scores)), metric_over_dataset=True)
    sparsifier = attached(method, task)
    sparsifier.begin_epoch()
    train_epoch(sparsifier)
    sparsifier.state.observed.add(0.9, 48)
    before = [buffer.clone() for buffer in sparsifier.state.model.buffers()]
    sparsifier.finish_epoch()
    assert sparsifier.phase.name == "regularize"
    assert all(torch.equal(*pair) for pair in zip(before, sparsifier.state.model.buffers(), strict=True))


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda tables: next(iter(next(iter(tables.values())))))
def test_each_trains_to_its_end(variant: dict[str, dict[str, object]], tmp_path: Path) -> None:
    recipe = resolve(merge(TABLES, variant))
    result = train(recipe, 0, Machine(device="cpu"), tmp_path / "run")
    assert result["kept"] == result["total"] - math.floor(recipe.method.sparsity * result["total"])  # type: ignore[attr-defined]
    assert result["until"] is None


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_stopped_in_the_middle_of_the_regularized_phase_it_ends_the_same(tmp_path: Path) -> None:
    recipe = small(method={"reestimate": 2, "growth_steps": 3, "regularized_lr": 0.5})
    train(recipe, 0, Machine(device="cpu"), tmp_path / "whole")
    watcher = StopAfter(4 * 2 + 6)  # four steps an epoch, two of pre-training
    with pytest.raises(Stopped):
        train(recipe, 0, Machine(device="cpu"), tmp_path / "halves", watcher=watcher, stop=watcher.request)
    train(recipe, 0, Machine(device="cpu"), tmp_path / "halves")
    ends = [tmp_path / name / "final.safetensors" for name in ("whole", "halves")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
    logs = [[json.loads(line) for line in (end.parent / "log.jsonl").read_text().splitlines()] for end in ends]
    pressed = [[entry["strength"] for entry in log if "strength" in entry] for log in logs]
    assert pressed[0] == pressed[1] != []


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_passes_for_statistics_are_counted(tmp_path: Path) -> None:
    costs = []
    for batches in (0, 1, 2):
        recipe = resolve(merge(TABLES, {"method": {"reestimate": batches, "max_regularized_epochs": 1}}))
        costs.append(train(recipe, 0, Machine(device="cpu"), tmp_path / str(batches))["scoring_flops"])
    one, two = (later - earlier for earlier, later in pairwise(costs))
    assert one == two > 0

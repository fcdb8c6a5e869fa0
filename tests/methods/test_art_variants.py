"""ART: what is not in the paper, to be tried at equal epochs."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from hypersparse import ART, Task
from hypersparse.errors import OptionError
from hypersparse.recipe import merge, resolve
from hypersparse.sparsity.schedules import drops
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
    {"method": {"stop": "paper"}},
    {"method": {"select": "mean"}},
    {"method": {"rewire": 0.3, "rewire_every": 3}},
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
            sparsifier.add_penalty_gradient_()
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
    method = ART(sparsity=0.75, pretrain_epochs=0, max_regularized_epochs=1, reestimate=batches, stop="paper")
    sparsifier = attached(method, Task(cross_entropy, three_classes(), rating=lambda *_: torch.tensor(1.0)))
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
    method = ART(sparsity=0.75, pretrain_epochs=0, max_regularized_epochs=5, reestimate=2, stop="code")
    scores = iter([0.1, 0.2])
    task = Task(cross_entropy, three_classes(), rating=lambda *_: torch.tensor(next(scores)), whole=True)
    sparsifier = attached(method, task)
    sparsifier.begin_epoch()
    train_epoch(sparsifier)
    sparsifier.observe_ratings(0.9, 48)
    before = [buffer.clone() for buffer in sparsifier.state.model.buffers()]
    sparsifier.finish_epoch()
    assert sparsifier.phase.name == "regularize"
    assert all(torch.equal(*pair) for pair in zip(before, sparsifier.state.model.buffers(), strict=True))


def test_rewiring_is_the_first_half_of_fine_tuning() -> None:
    plan = ART(pretrain_epochs=0, rewire=0.3).plan(160)
    assert [(phase.name, phase.epochs, phase.restart) for phase in plan[1:]] == [
        ("rewire", 80, True),
        ("fine-tune", 80, False),  # one optimizer throughout
    ]
    assert [(phase.schedule_start, phase.schedule_epochs) for phase in plan[1:]] == [(0, 160), (80, 160)]
    assert [phase.adjust is not None for phase in plan] == [False, True, False]
    assert [phase.name for phase in ART(rewire=0.3).plan(1)] == ["pre-train", "regularize", "fine-tune"]
    assert plan[0].shared == ART(pretrain_epochs=0).plan(160)[0].shared


def test_rewiring_nothing_so_and_so_often_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"with `rewire` 0 none does; pass `rewire` too, such as 0\.3"):
        ART(rewire_every=22)


def test_rewired_weights_move_and_keep_their_number_in_every_layer() -> None:
    method = ART(sparsity=0.5, pretrain_epochs=0, max_regularized_epochs=1, rewire=0.4, rewire_every=2)
    sparsifier = attached(method, Scripted(0.9, 0.1), epochs=4, lr=drops((0.5, 0.75), 0.1))
    masks, rates = [], []
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
        rates.append((sparsifier.phase.name, sparsifier.lr))
        if sparsifier.mask is not None:
            masks.append(sparsifier.mask)
            assert all(weight[~masks[-1][name]].eq(0).all() for name, weight in sparsifier.weights.items())
    assert len({tuple(mask.kept_by_layer().values()) for mask in masks}) == 1
    assert len(masks) == 4
    assert masks[0] != masks[1]
    assert masks[1] == masks[2] == masks[3]
    assert [name for name, _ in rates] == ["regularize", "rewire", "rewire", "fine-tune", "fine-tune"]
    assert [rate for _, rate in rates[1:]] == pytest.approx([0.05, 0.05, 0.005, 0.0005])  # falls as in a whole one


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda tables: next(iter(next(iter(tables.values())))))
def test_each_trains_to_its_end(variant: dict[str, dict[str, object]], tmp_path: Path) -> None:
    recipe = resolve(merge(TABLES, variant))
    result = train(recipe, 0, Machine(device="cpu"), tmp_path / "run")
    assert result["kept"] == result["total"] - math.floor(recipe.method.sparsity * result["total"])  # type: ignore[attr-defined]
    assert result["until"] is None


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
@pytest.mark.parametrize("step", [6, 4 * 3 + 2], ids=["regularize", "rewire"])
def test_stopped_in_the_middle_of_a_phase_it_ends_the_same(step: int, tmp_path: Path) -> None:
    changed = {"reestimate": 2, "growth_steps": 3, "regularized_lr": 0.5, "rewire": 0.3, "rewire_every": 2}
    recipe = small(method={**changed, "growth": 1.0, "strength": 1e-9, "sparsity": 0.98})  # never free to prune
    train(recipe, 0, Machine(device="cpu"), tmp_path / "whole")
    watcher = StopAfter(4 * 2 + step)  # four steps an epoch, two of pre-training
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

"""What the ranks send to each other, counted at the collectives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

import hypersparse
from hypersparse import GMP, Method, RigL, Sparsifier, Task
from hypersparse.distributed import Ranks
from hypersparse.distributed.traffic import Traffic
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.distributed.processes import in_processes
from tests.distributed.test_fsdp import sharded
from tests.distributed.test_train import DIGITS
from tests.plain_loop import batches, cross_entropy, sgd, short_art, train_step
from tests.training.small import small

pytestmark = [pytest.mark.ddp, pytest.mark.slow, pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")]
HISTOGRAMS = 8 * (2048 + 2048 + 1024)  # bytes, of the three digits of a float32


def counted(work: Callable[[], object]) -> dict[str, int]:
    with Traffic() as traffic:
        work()
    assert traffic.total == sum(traffic.bytes.values())
    return dict(traffic.bytes)


def of_ranks() -> dict[str, int]:
    ranks = Ranks()
    flat, part = torch.zeros(6), torch.zeros(3, dtype=torch.float64)

    def work() -> None:
        ranks.sum_([flat, torch.zeros(2, 2)])
        distributed.broadcast(part, src=0)
        distributed.all_gather([torch.zeros(3), torch.zeros(3)], torch.zeros(3))
        distributed.all_gather_into_tensor(torch.zeros(10), torch.zeros(5))
        distributed.reduce_scatter_tensor(torch.zeros(4), torch.zeros(8))

    return counted(work)


def test_what_is_handed_to_collectives_is_counted_in_bytes(tmp_path: Path) -> None:
    first, second = in_processes(2, of_ranks, tmp_path)
    assert first == second == {
        "allreduce_": 40,
        "broadcast_": 24,
        "allgather_": 12,
        "_allgather_base_": 20,
        "_reduce_scatter_base_": 32,
    }  # fmt: skip


class Marks:
    """Notes the bytes so far after every step."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic, self.steps = traffic, [0]

    def started(self, *_: Any) -> None:
        self.steps.append(self._traffic.total)

    def stepped(self, _: int) -> None:
        self.steps.append(self._traffic.total)

    def finished_epoch(self, _: Any) -> None:
        self.steps.append(self._traffic.total)


def of_train(folder: str) -> tuple[int, int]:
    dense = {**DIGITS, "training": {**DIGITS["training"], "epochs": 1}, "method": {"name": "dense"}}
    with Traffic() as traffic:
        marks = Marks(traffic)
        train(small(**dense), 0, Machine(device="cpu"), folder, callback=marks, ranks=Ranks())
    between = [after - before for before, after in zip(marks.steps, marks.steps[1:], strict=False)]
    return max(set(between), key=between.count), traffic.total


def test_a_step_of_train_sends_each_gradient_once(tmp_path: Path) -> None:
    (step, total), _ = in_processes(2, of_train, tmp_path, str(tmp_path / "run"))
    assert step == 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert total > 20 * step


def begun(model: nn.Module, method: Method) -> Sparsifier:
    task = Task(cross_entropy, batches())
    sparsifier = hypersparse.attach(model, sgd(model), method, epochs=2, task=task)
    next(sparsifier.epochs())
    for inputs, labels in batches():  # DDP rebuilds its buckets after the first step, and FSDP begins lazily
        train_step(sparsifier, inputs, labels)
    return sparsifier


def of_steps(make: Callable[[], nn.Module]) -> dict[str, dict[str, int]]:
    """Of one step in the middle of an epoch, by method."""
    methods = {
        "gmp": GMP(sparsity=0.8),
        "rigl": RigL(sparsity=0.8, distribution="erk", search=1.0, update_every=2),
        "art": short_art(pretrain_epochs=0),
    }
    found = {}
    for name, method in methods.items():
        sparsifier = begun(make(), method)
        found[name] = counted(lambda sparsifier=sparsifier: train_step(sparsifier, *batches()[0]))  # type: ignore[misc]
    return found


def replicated() -> nn.Module:
    return nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)))


def test_attach_adds_nothing_to_a_step_of_ddp(tmp_path: Path) -> None:
    found, _ = in_processes(2, of_steps, tmp_path, replicated)
    gradients = 4 * (6 * 12 + 12 + 12 * 3 + 3)
    assert found["gmp"] == found["art"] == {"allreduce_": gradients}
    digest = found["rigl"].pop("allgather_")  # of the mask that it has changed
    assert found["rigl"]["allreduce_"] == gradients
    assert digest + sum(found["rigl"].values()) < gradients + 200


def test_under_fsdp_the_penalty_adds_histograms_and_sums(tmp_path: Path) -> None:
    found, _ = in_processes(2, of_steps, tmp_path, sharded)
    assert found["art"].pop("allreduce_") == HISTOGRAMS + 2 * 4
    assert found["art"] == found["gmp"]
    assert found["gmp"].keys() == {"_allgather_base_", "_reduce_scatter_base_"}  # FSDP's own
    assert found["rigl"].pop("allreduce_") >= 2 * 2 * HISTOGRAMS  # what falls and what grows, in each of two layers
    digests = found["rigl"].pop("allgather_")
    assert digests < 300
    assert {name: found["rigl"][name] for name in found["gmp"]} == found["gmp"]


def of_pruning() -> dict[str, int]:
    model = nn.Linear(256, 256)
    torch.distributed.fsdp.fully_shard(model)
    weights = hypersparse.PrunableWeights(model)
    scores: dict[str, Tensor] = hypersparse.scores.magnitude(weights)
    return counted(lambda: weights.set_mask_(weights.select(scores, 1000)))


def test_pruning_under_fsdp_gathers_no_weights(tmp_path: Path) -> None:
    found, _ = in_processes(2, of_pruning, tmp_path)
    assert found == {"allreduce_": HISTOGRAMS + 4 + 8, "allgather_": 8}  # of 128 KiB of weights on each rank

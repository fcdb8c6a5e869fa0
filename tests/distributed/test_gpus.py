"""Several processes on GPUs: DDP, SyncBatchNorm, `fully_shard`, `train` and torchrun, by NCCL.

NCCL refuses two processes on one GPU. Where there is only one, a single process runs by NCCL, and two share the GPU by
gloo, so that CUDA tensors are exchanged. `fully_shard` uses NCCL for CUDA tensors whatever the default group is.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard

import hypersparse
from hypersparse import Task
from hypersparse.distributed import Ranks
from hypersparse.distributed.checkpoint import load_checkpoint, save_checkpoint
from hypersparse.plurals import how_many
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.distributed import test_ddp, test_fsdp
from tests.distributed.processes import in_processes
from tests.distributed.test_torchrun import SHORT
from tests.plain_loop import KEPT, attached, batches, cross_entropy, network, sgd, short_art
from tests.training.small import small

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")]
GPUS = max(1, torch.cuda.device_count())
GROUPS = [(GPUS, "nccl"), *([(2, "gloo")] if GPUS == 1 else [])]
each_group = pytest.mark.parametrize(("count", "backend"), GROUPS)
each_sharded_group = pytest.mark.parametrize(("count", "backend"), GROUPS[:1])
Found = dict[str, Any]


def on_gpu(pairs: Iterable[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    return [(inputs.cuda(), labels.cuda()) for inputs, labels in pairs]


def share() -> list[tuple[Tensor, Tensor]]:
    """This rank's samples of each batch."""
    return on_gpu(test_fsdp.share())


def home(found: Found) -> Found:
    """The same, with tensors that any process can read."""
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in found.items()}


def check_same_everywhere(first: Found, others: list[Found]) -> None:
    for other in others:
        assert first.keys() == other.keys()
        for name, value in first.items():
            if isinstance(value, Tensor):
                torch.testing.assert_close(value, other[name], rtol=0, atol=0)
            else:
                assert value == other[name]


def check_pruned_alike(found: Found, alone: Found) -> None:
    assert (found["epochs"], found["kept"]) == (alone["epochs"], alone["kept"])
    for name, weight in alone.items():
        if isinstance(weight, Tensor):
            assert torch.equal(found[name] == 0, weight == 0), name
            torch.testing.assert_close(found[name], weight, rtol=1e-3, atol=1e-4)


def train_ddp() -> dict[str, Found]:
    """Of every method; random numbers and scored samples are this rank's own."""
    found = {}
    for name, method in test_ddp.METHODS.items():
        model = nn.SyncBatchNorm.convert_sync_batchnorm(network().cuda())
        wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
        torch.manual_seed(distributed.get_rank())
        sparsifier = attached(wrapped, sgd(model), method, task=Task(cross_entropy, share()))
        found[name] = home(test_ddp.train(sparsifier, wrapped, share()))  # type: ignore[arg-type]
    return found


@each_group
def test_ranks_in_ddp_agree_on_everything(tmp_path: Path, count: int, backend: str) -> None:
    first, *others = in_processes(count, train_ddp, tmp_path, backend=backend, gpus=True)
    for name in test_ddp.METHODS:
        assert first[name]["kept"] == KEPT, name
        check_same_everywhere(first[name], [other[name] for other in others])


def statistics() -> Found:
    """After a step, of batch norm over the samples of all ranks."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(network().cuda())
    wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    optimizer = sgd(model)
    for inputs, labels in share():
        optimizer.zero_grad()
        cross_entropy(wrapped(inputs), labels).backward()
        optimizer.step()
    return home(dict(model.state_dict()))


@each_group
def test_statistics_of_a_batch_are_over_all_ranks(tmp_path: Path, count: int, backend: str) -> None:
    first, *others = in_processes(count, statistics, tmp_path, backend=backend, gpus=True)
    check_same_everywhere(first, others)
    model = network().cuda()
    optimizer = sgd(model)
    for inputs, labels in on_gpu(batches()):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    for name, value in home(dict(model.state_dict())).items():
        torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-5)


def sharded() -> nn.Module:
    model = test_fsdp.network().cuda()
    fully_shard(model.get_submodule("first"))
    fully_shard(model)
    return model


def train_sharded() -> dict[str, Found]:
    return {
        name: home(test_fsdp.outcome(test_fsdp.train(sharded(), method, share())))
        for name, method in test_fsdp.METHODS.items()
    }


@each_sharded_group
def test_shards_are_pruned_as_the_whole_network_is(tmp_path: Path, count: int, backend: str) -> None:
    first, *others = in_processes(count, train_sharded, tmp_path, backend=backend, gpus=True)
    for name, method in test_fsdp.METHODS.items():
        alone = test_fsdp.outcome(test_fsdp.train(test_fsdp.network().cuda(), method, on_gpu(batches())))
        check_same_everywhere(first[name], [other[name] for other in others])
        check_pruned_alike(first[name], home(alone))


def continue_sharded(folder: str, stop: int | None) -> Found:
    """Save in the middle of the regularized phase, or load and train to the end."""
    model = sharded()
    task = Task(cross_entropy, share())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    method = short_art(max_regularized_epochs=4)
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=2, task=task)
    if stop is None:
        load_checkpoint(f"{folder}/saved", sparsifier)
    for epoch in sparsifier.epochs():
        test_fsdp.train_epoch(sparsifier, share())
        if epoch == stop:
            save_checkpoint(f"{folder}/saved", sparsifier)
    return home(test_fsdp.outcome(sparsifier))


@each_sharded_group
def test_a_sharded_checkpoint_goes_on_as_if_there_was_none(tmp_path: Path, count: int, backend: str) -> None:
    wanted = in_processes(count, continue_sharded, tmp_path, str(tmp_path), 4, backend=backend, gpus=True)
    (resumed,) = in_processes(1, continue_sharded, tmp_path, str(tmp_path), None, backend="nccl", gpus=True)
    again = in_processes(count, continue_sharded, tmp_path, str(tmp_path), None, backend=backend, gpus=True)
    check_same_everywhere(again[0], again[1:])
    check_pruned_alike(again[0], wanted[0])
    check_pruned_alike(resumed, wanted[0])


def train_share(folder: str, engine: Any) -> Found:
    machine = Machine(device=f"cuda:{torch.cuda.current_device()}", engine=engine)
    result = train(small(training={"lr": 0.02}), 0, machine, folder, ranks=Ranks())
    return {"kept": result["kept"], "ranks": result["machine"].get("ranks", 1)}


@each_group
@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_a_run_of_several_ranks_is_that_of_one(tmp_path: Path, count: int, backend: str, engine: str) -> None:
    found = in_processes(count, train_share, tmp_path, str(tmp_path / "all"), engine, backend=backend, gpus=True)
    alone = train(small(training={"lr": 0.02}), 0, Machine(device="cuda", engine="eager"), tmp_path / "alone")
    assert found == [{"kept": alone["kept"], "ranks": count}] * count
    logs = [RunFolder(tmp_path / name).log() for name in ("all", "alone")]
    for ours, theirs in zip(*logs, strict=True):
        assert (ours["phase"], ours["kept"]) == (theirs["phase"], theirs["kept"])
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=5e-3)


def torchrun(folder: Path, count: int, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command += ["-m", "hypersparse", "train", "--device", "cuda", "--no-report", "--runs-dir", str(folder / "runs")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *options], env=environment, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


def test_torchrun_trains_one_run_on_all_gpus(tmp_path: Path) -> None:
    done = torchrun(tmp_path, GPUS, *SHORT)
    assert done.returncode == 0, done.stderr
    epochs = [line for line in done.stdout.splitlines() if " loss " in line]
    assert [line.split()[0] for line in epochs] == ["pre-train", "regularize", "fine-tune"]
    (run,) = (tmp_path / "runs").glob("*/seed-0")
    result = RunFolder(run).result()
    assert result is not None
    assert (result["machine"]["device"], result["machine"].get("ranks", 1)) == (torch.cuda.get_device_name(), GPUS)


def test_more_processes_than_gpus_are_refused_in_one_sentence(tmp_path: Path) -> None:
    done = torchrun(tmp_path, GPUS + 1, *SHORT)
    assert done.returncode != 0
    said = f"{GPUS + 1} processes were started, and {how_many(GPUS, 'GPU')} found"
    assert done.stderr.count(said) == 1, done.stderr
    assert "Traceback" not in done.stderr.partition("error: ")[0]


def meet_on_one_gpu() -> str:
    torch.cuda.set_device(0)
    with pytest.raises(distributed.DistBackendError) as error:
        distributed.all_reduce(torch.ones(1, device="cuda"))
    return str(error.value)


@pytest.mark.skipif(GPUS > 1, reason="for machines with one GPU")
def test_nccl_refuses_two_processes_on_one_gpu(tmp_path: Path) -> None:
    for said in in_processes(2, meet_on_one_gpu, tmp_path, backend="nccl", gpus=True):
        assert "Duplicate GPU detected" in said

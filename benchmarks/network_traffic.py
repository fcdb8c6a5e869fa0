"""Measure what the ranks of one training send to each other in a step, and print a table.

unshare -rn sh -c 'ip link set lo up && python -m benchmarks.network_traffic [--ranks 2,4]'

Payload is what a rank hands to collectives, counted by `hypersparse.distributed.traffic`. Sent is what went through the
loopback device, with all headers, divided by the number of ranks; in a network namespace of its own nothing else does.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn

import hypersparse
from hypersparse import ART, Method, RigL, Task, models
from hypersparse.distributed import Ranks
from hypersparse.distributed.traffic import Traffic

STEPS, BATCH, SIDE = 10, 8, 8
ART_NOW = ART(sparsity=0.98, pretrain_epochs=0)
RIGL_NOW = RigL(sparsity=0.98, update_every=1)


def network() -> nn.Module:
    """ResNet-32 as for CIFAR-10, on smaller images: these do not change what is sent."""
    torch.manual_seed(0)
    return models.build("resnet32", shape=(3, SIDE, SIDE), classes=10, options={})


def sharded() -> nn.Module:
    """The same with each block sharded."""
    model = network()
    for module in list(model.modules()):
        if "Block" in type(module).__name__:
            fully_shard(module)
    fully_shard(model)
    return model


def replicated() -> nn.Module:
    """The same in DistributedDataParallel."""
    return nn.parallel.DistributedDataParallel(network())


def train_steps(make: Callable[[], nn.Module], method: Method | None) -> Callable[[], None]:
    """A function that makes one step."""
    model, criterion = make(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.arange(BATCH) % 10
    if method is not None:
        task = Task(criterion, [(images, labels)])
        sparsifier = hypersparse.attach(model, optimizer, method, epochs=1, task=task)
        next(sparsifier.epochs())

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()

    return step


def summed_gradients() -> Callable[[], None]:
    """What several processes of `hypersparse train` exchange in a step."""
    model, ranks = network(), Ranks()
    images, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.arange(BATCH) % 10

    def step() -> None:
        nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        ranks.sum_(gradient for parameter in model.parameters() if isinstance(gradient := parameter.grad, Tensor))

    return step


CASES: dict[str, Callable[[], Callable[[], None]]] = {
    "torchrun -m hypersparse train": summed_gradients,
    "DDP": lambda: train_steps(replicated, None),
    "DDP, ART regularizes": lambda: train_steps(replicated, ART_NOW),
    "DDP, RigL moves weights": lambda: train_steps(replicated, RIGL_NOW),
    "FSDP2": lambda: train_steps(sharded, None),
    "FSDP2, ART regularizes": lambda: train_steps(sharded, ART_NOW),
    "FSDP2, RigL moves weights": lambda: train_steps(sharded, RIGL_NOW),
}


def sent() -> int:
    """Bytes that have gone through the loopback device."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[9])


def measure(rank: int, count: int, folder: str) -> None:
    """One rank's part; rank 0 prints."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    for name, prepare in CASES.items():
        step = prepare()
        step()
        distributed.barrier()
        before = sent()
        distributed.barrier()
        with Traffic() as traffic:
            for _ in range(STEPS):
                step()
        distributed.barrier()
        through = (sent() - before) / STEPS / count
        calls = sum(traffic.calls.values()) / STEPS
        if rank == 0:
            print(f"| {name} | {count} | {traffic.total / STEPS:,.0f} | {calls:g} | {through:,.0f} |", flush=True)
        distributed.barrier()
    distributed.destroy_process_group()


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, between commas")
    counts: Any = parser.parse_args(argv).ranks
    print("| training | ranks | payload of a rank, bytes a step | collectives a step | sent by a rank, bytes a step |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for count in map(int, counts.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            spawn(measure, args=(count, folder), nprocs=count)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()

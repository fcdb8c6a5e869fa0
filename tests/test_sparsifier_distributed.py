"""The sparsifier in a loop of two processes that share each step."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.multiprocessing import spawn  # type: ignore[attr-defined]

from hypersparse import SET, SNIP, Method
from tests.plain_loop import attached, batches, network, sgd, short_art, train_step

METHODS: dict[str, Method] = {"art": short_art(), "snip": SNIP(sparsity=0.8, data="batch"), "set": SET(sparsity=0.8)}


def train_one(rank: int, folder: str) -> None:
    """One of the two processes."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name, method in METHODS.items():
        torch.save(trained(rank, method), f"{folder}/{name}-{rank}")
    gc.collect()  # a wrapper that is left would keep the group alive, whose threads then end the process with an abort
    distributed.barrier()  # nor may one go while the other still talks to it
    distributed.destroy_process_group()


def trained(rank: int, method: Method) -> dict[str, Any]:
    """What comes of a method: own samples in every step, the same ones to score the network on."""
    model = network()
    sparsifier = attached(nn.parallel.DistributedDataParallel(model), sgd(model), method)
    for _ in sparsifier.epochs():
        sparsifier.state.model.train()
        for inputs, labels in batches():
            train_step(sparsifier, inputs[rank::2], labels[rank::2])
    weights = {key: weight.detach().clone() for key, weight in sparsifier.weights.items()}
    return {"epochs": sparsifier.total_epoch, **weights}


@pytest.mark.ddp
@pytest.mark.slow
def test_processes_that_score_the_same_samples_agree_on_everything(tmp_path: Path) -> None:
    spawn(train_one, (str(tmp_path),), nprocs=2)
    for name in METHODS:
        one, other = (torch.load(tmp_path / f"{name}-{rank}", weights_only=True) for rank in (0, 1))
        assert one["epochs"] == other["epochs"]
        assert list(one) == ["epochs", "first.weight", "last.weight"]  # without the wrapper's `module.`
        assert all(torch.equal(one[key], other[key]) for key in ("first.weight", "last.weight"))
        assert sum(int((one[key] != 0).sum()) for key in ("first.weight", "last.weight")) <= 22

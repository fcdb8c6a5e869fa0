"""`torchrun -m hypersparse train`: several processes train one network, as their environment variables say."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
from torch import distributed
from torch._C._distributed_c10d import TCPStore

from hypersparse.distributed import Ranks
from hypersparse.errors import OptionError
from hypersparse.plurals import how_many
from hypersparse.training.machine import Machine

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # that torchrun sets
SECONDS_TO_ANSWER = 10


@contextmanager
def ranks_of_torchrun(machine: Machine, environ: Mapping[str, str]) -> Iterator[tuple[Ranks, Machine]]:
    """The processes that torchrun has started, and this one's machine; without torchrun this one alone."""
    if not _is_one_of_several(environ):
        yield Ranks.alone(), machine
        return
    machine = _own_device(machine, environ)
    cuda = machine.torch_device().type == "cuda"
    if cuda:
        torch.cuda.set_device(machine.torch_device())
        machine = replace(machine, engine="compiled") if machine.engine == "auto" else machine
    distributed.init_process_group("nccl" if cuda else "gloo")
    ranks = Ranks()
    if not ranks.first:
        logging.getLogger("hypersparse").disabled = True
        warnings.simplefilter("ignore")
    try:
        yield ranks, machine
    except BaseException:
        if not cuda:  # NCCL would wait for the others
            distributed.destroy_process_group()
        raise
    distributed.destroy_process_group()


def says_error(environ: Mapping[str, str]) -> bool:
    """Whether this process prints its error. One process prints: all end by the first error."""
    if not _is_one_of_several(environ):
        return True
    address, port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    try:
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=SECONDS_TO_ANSWER))
        return bool(store.add("hypersparse/errors", 1) == 1)
    except RuntimeError:  # nobody is there to ask
        return environ["RANK"] == "0"


def started_as(environ: Mapping[str, str]) -> list[str]:
    """The command that started this process, without its arguments."""
    if not _is_one_of_several(environ):
        return ["hypersparse"]
    count = environ.get("LOCAL_WORLD_SIZE", environ["WORLD_SIZE"])
    return ["torchrun", "--nproc-per-node", count, "-m", "hypersparse"]


def _is_one_of_several(environ: Mapping[str, str]) -> bool:
    return all(name in environ for name in VARIABLES) and int(environ["WORLD_SIZE"]) > 1


def _own_device(machine: Machine, environ: Mapping[str, str]) -> Machine:
    if machine.torch_device().type != "cuda":
        return machine
    if machine.device not in ("auto", "cuda"):
        raise OptionError(
            f"Each process takes a GPU of its own; got `--device {machine.device}`. Pass `--device cuda`, or choose "
            "GPUs by CUDA_VISIBLE_DEVICES."
        )
    started, found = int(environ.get("LOCAL_WORLD_SIZE", environ["WORLD_SIZE"])), torch.cuda.device_count()
    if started > found:
        raise OptionError(
            f"Each process takes a GPU of its own; {started} processes were started, and {how_many(found, 'GPU')} "
            f"found. Pass `--nproc-per-node {found}`, or `--device cpu`."
        )
    return replace(machine, device=f"cuda:{environ['LOCAL_RANK']}")

"""Real processes in a group, for tests; each is forked from a server that has imported torch already."""

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import distributed

SECONDS = 150  # after which a test fails instead of hanging
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch.distributed.fsdp", "hypersparse"])


class Group(NamedTuple):
    """What the processes of a group share."""

    count: int
    meeting: str
    timeout: float
    backend: str
    gpus: bool


def in_processes(
    count: int,
    work: Callable[..., Any],
    folder: Path,
    *arguments: Any,
    timeout: float = SECONDS,
    joined: bool = True,
    backend: str = "gloo",
    gpus: bool = False,
) -> list[Any]:
    """What `work(*arguments)` returns in each of so many processes; `timeout` is that of their collectives.

    If they are not `joined` yet, `work` also gets a function that joins them. With `gpus` each process has one of the
    GPUs, which several may share; without, it sees none.
    """
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    meeting.mkdir()
    group = Group(count, str(meeting), timeout, backend, gpus)
    started = [
        context.Process(target=_work, args=(rank, group, joined, work, arguments), daemon=True) for rank in range(count)
    ]
    for process in started:
        process.start()
    deadline = time.monotonic() + SECONDS
    for process in started:
        process.join(max(0.0, deadline - time.monotonic()))
    hanging = [rank for rank, process in enumerate(started) if process.is_alive()]
    for process in started:
        process.kill()
    errors = [file.read_text() for file in sorted(meeting.glob("*.error"))]
    if hanging or errors or any(process.exitcode for process in started):
        pytest.fail(f"hanging: {hanging}, codes: {[each.exitcode for each in started]}\n" + "\n".join(errors))
    return [torch.load(meeting / f"{rank}.result", weights_only=False) for rank in range(count)]


def _work(rank: int, group: Group, joined: bool, work: Callable[..., Any], arguments: Any) -> None:
    torch.set_num_threads(1)
    folder = Path(group.meeting)
    if group.gpus:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else `fully_shard` would take one

    def join() -> None:
        distributed.init_process_group(
            group.backend,
            init_method=f"file://{group.meeting}/store",
            rank=rank,
            world_size=group.count,
            timeout=timedelta(seconds=group.timeout),
        )

    try:
        if joined:
            join()
        torch.save(work(*arguments) if joined else work(join, *arguments), folder / f"{rank}.result")
    except BaseException:
        (folder / f"{rank}.error").write_text(f"rank {rank}: {traceback.format_exc()}")
        raise
    finally:
        distributed.destroy_process_group()

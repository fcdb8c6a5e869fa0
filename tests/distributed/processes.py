"""Real processes in a gloo group, for tests; each is forked from a server that has imported torch already."""

import multiprocessing
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

SECONDS = 150  # after which a test fails instead of hanging
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch.distributed.fsdp", "hypersparse"])


def in_processes(
    count: int, work: Callable[..., Any], folder: Path, *arguments: Any, timeout: float = SECONDS, joined: bool = True
) -> list[Any]:
    """What `work(*arguments)` returns in each of so many processes; `timeout` is that of their collectives.

    If they are not `joined` yet, `work` also gets a function that joins them.
    """
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    meeting.mkdir()
    started = [
        context.Process(target=_work, args=(rank, count, str(meeting), timeout, joined, work, arguments), daemon=True)
        for rank in range(count)
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


def _work(
    rank: int, count: int, meeting: str, timeout: float, joined: bool, work: Callable[..., Any], arguments: Any
) -> None:
    torch.set_num_threads(1)
    folder = Path(meeting)

    def join() -> None:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{meeting}/store",
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=timeout),
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

"""Work side by side on one device: a thread and a stream each."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TypeVar

import torch

T = TypeVar("T")


def side_by_side(works: Sequence[Callable[[], T]], device: torch.device) -> list[T]:
    """Run each in a thread with a stream of its own; results in order, the first error once all have ended."""
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work(number: int) -> None:
        try:
            with _own_stream(device):
                results[number] = works[number]()
        except BaseException as error:  # raised below, in the caller's thread
            errors[number] = error

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(works))]


def _own_stream(device: torch.device) -> AbstractContextManager[object]:
    if device.type != "cuda":
        return nullcontext()
    stack = ExitStack()
    stack.enter_context(torch.cuda.device(device))
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.default_stream(device))  # where shared data was put on the device
    stack.enter_context(torch.cuda.stream(stream))
    return stack

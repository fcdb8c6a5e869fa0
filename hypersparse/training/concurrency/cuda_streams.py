"""Work side by side on one device: a thread and a stream each."""

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")
# A signal may reach any thread, but only the main one can act on it, and not while it waits without end.
SECONDS_OF_WAITING = 0.5


class CaptureLock:
    """Many may work on the device at once; who compiles or captures does it alone.

    Neither compiling nor capturing is made for several threads, and other threads' libraries may load kernels or wait
    for the device just then, which spoils a capture. Replaying what was captured needs no gate.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._builder: int | None = None
        self._depth = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Wait while somebody builds; not inside `building`, and never the other way round."""
        with self._changed:
            self._changed.wait_for(lambda: self._builder is None)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Wait until nobody works or builds; may be entered again by the same thread."""
        own = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self._builder in (None, own))
            self._builder, self._depth = own, self._depth + 1
            self._changed.wait_for(lambda: self._working == 0)
        try:
            yield
        finally:
            with self._changed:
                self._depth -= 1
                if not self._depth:
                    self._builder = None
                self._changed.notify_all()

    @contextmanager
    def first_alone(self, known: set[Hashable], what: Hashable) -> Iterator[None]:
        """`building` for work not `known` yet, which may compile something; beside others from then on."""
        with self.working() if what in known else self.building():
            yield
        known.add(what)


CAPTURE_LOCK = CaptureLock()  # of this process, as its device is


def run_concurrently(works: Sequence[Callable[[], T]], device: torch.device) -> list[T]:
    """Run each in a thread with a stream of its own; results in order, the first error once all have ended."""
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work(number: int) -> None:
        try:
            with own_stream(device):
                results[number] = works[number]()
        except BaseException as error:  # raised below, in the caller's thread
            errors[number] = error

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(SECONDS_OF_WAITING)
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(works))]


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Where the main thread captures steps, which cannot be done on the default stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Work on a stream of one's own, on which steps can also be captured: cuBLAS keeps its workspace by stream."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        device = torch.device("cuda", torch.cuda.current_device())  # one name for it
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        while stream == side_stream(device):  # there are 32 only: after that many the first one comes again
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.default_stream(device))  # where shared data was put on the device
        with torch.cuda.stream(stream):
            yield

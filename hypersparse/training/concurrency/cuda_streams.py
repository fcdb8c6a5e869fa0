"""Concurrent work on one device: a thread and a stream each."""

import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")
# A signal may reach any thread, but only the main one can act on it, and not while it waits without end.
SECONDS_OF_WAITING = 0.5
STREAMS_OF_A_DEVICE = 32  # that torch hands out


class CaptureLock:
    """Lets many threads use the device, and one thread alone compile or capture.

    Compiling and capturing are not thread-safe. Libraries of other threads may load kernels or synchronize, which
    invalidates a capture. Replaying a captured graph needs no lock.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._builder: int | None = None
        self._depth = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Wait while another thread builds; never nested with `building`."""
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
        """Wait until no other thread works or builds; reentrant."""
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
        """`building` for the first work of a kind, which may compile; `working` from then on."""
        with self.working() if what in known else self.building():
            yield
        known.add(what)


CAPTURE_LOCK = CaptureLock()  # of this process, as its device is


def run_concurrently(works: Sequence[Callable[[], T]], device: torch.device) -> list[T]:
    """Run each function in a thread with its own stream; results are in order, and the first error is raised last."""
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
    """The stream on which the main thread captures steps, which the default stream does not allow."""
    return STREAMS.take(device)


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Use an own stream, on which steps can be captured too: cuBLAS has a workspace per stream."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        device = torch.device("cuda", torch.cuda.current_device())  # one name for it
        with STREAMS.taken(device) as stream:
            stream.wait_stream(torch.cuda.default_stream(device))  # where shared data was put on the device
            with torch.cuda.stream(stream):
                yield


class Streams:
    """The streams in use: torch has 32 for a device and hands them out in turn, whether or not they are free.

    A stream that one run captures must not be another's.
    """

    def __init__(self) -> None:
        self._taken: set[torch.cuda.Stream] = set()
        self._lock = threading.Lock()

    def take(self, device: torch.device) -> torch.cuda.Stream:
        """A stream that nobody uses; where all are taken, the next one."""
        with self._lock:
            for _ in range(STREAMS_OF_A_DEVICE):
                stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                if stream not in self._taken:
                    break
            self._taken.add(stream)
            return stream

    def give_back(self, stream: torch.cuda.Stream) -> None:
        """It is free again."""
        with self._lock:
            self._taken.discard(stream)

    def take_for(self, owner: object, device: torch.device) -> torch.cuda.Stream:
        """A stream that nobody else uses as long as its owner exists."""
        stream = self.take(device)
        weakref.finalize(owner, self.give_back, stream)
        return stream

    @contextmanager
    def taken(self, device: torch.device) -> Iterator[torch.cuda.Stream]:
        """A stream that nobody else uses inside the block."""
        stream = self.take(device)
        try:
            yield stream
        finally:
            self.give_back(stream)


STREAMS = Streams()  # of this process

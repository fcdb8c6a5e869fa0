"""Who builds is alone; who works is not."""

import itertools
import signal
import threading
import time
from collections.abc import Hashable

import pytest
import torch

from hypersparse.cli.signals import stopped_by_signals
from hypersparse.training.concurrency.cuda_streams import CaptureLock, Streams, run_concurrently
from hypersparse.training.stop import StopRequest


def test_many_work_at_once() -> None:
    gate, met = CaptureLock(), threading.Barrier(2, timeout=5)

    def work() -> None:
        with gate.working():
            met.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not met.broken


def test_a_builder_waits_for_workers_and_they_for_it() -> None:
    gate, events = CaptureLock(), list[str]()
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with gate.working():
            inside.set()
            leave.wait(5)
            events.append("worked")

    def build() -> None:
        with gate.building(), gate.building():  # again by the same thread
            events.append("built")
            time.sleep(0.05)
            events.append("still building")

    def work_later() -> None:
        with gate.working():
            events.append("worked later")

    first, builder, later = (threading.Thread(target=target) for target in (work, build, work_later))
    first.start()
    inside.wait(5)
    builder.start()
    time.sleep(0.05)
    later.start()  # the builder is already waiting, and goes first
    time.sleep(0.05)
    assert events == []
    leave.set()
    for thread in (first, builder, later):
        thread.join(5)
    assert events == ["worked", "built", "still building", "worked later"]


def test_the_first_of_a_kind_is_alone_and_the_next_ones_are_not() -> None:
    gate, known = CaptureLock(), set[Hashable]()

    def try_beside_a_worker(kind: str) -> bool:
        """Whether it got in while somebody worked."""
        entered = threading.Event()

        def enter() -> None:
            with gate.first_alone(known, kind):
                entered.set()

        thread = threading.Thread(target=enter)
        with gate.working():
            thread.start()
            beside = entered.wait(0.1 if kind not in known else 5)
        thread.join(5)
        assert entered.is_set()
        return beside

    assert [try_beside_a_worker(kind) for kind in ("a", "a", "b", "a", "b")] == [False, True, False, True, True]


def test_what_failed_is_tried_alone_again() -> None:
    gate, known = CaptureLock(), set[Hashable]()
    with pytest.raises(ValueError, match="out of memory"), gate.first_alone(known, "a"):
        raise ValueError("out of memory")
    assert not known
    with gate.building():  # nobody is left inside
        pass


def test_a_signal_that_reaches_another_thread_is_heard() -> None:
    stop = StopRequest()

    def work() -> bool:
        time.sleep(0.2)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # as some kernels deliver them
        end = time.monotonic() + 10
        while time.monotonic() < end and not stop.requested():
            time.sleep(0.01)
        return stop.requested()

    with stopped_by_signals(stop):
        assert run_concurrently([work], torch.device("cpu")) == [True]


def test_a_stream_in_use_is_not_handed_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = itertools.cycle(range(4))  # torch's own are 32, in turn
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: next(turn))
    streams, device = Streams(), torch.device("cpu")

    class Owner:
        pass

    owner = Owner()
    assert streams.take_for(owner, device) == 0
    with streams.taken(device) as used:
        assert used == 1
        assert [streams.take(device) for _ in range(2)] == [2, 3]
    assert streams.take(device) == 1  # the others are still in use
    del owner
    assert streams.take(device) == 0
    assert streams.take(device) in range(4)  # where all are, two share one

"""Trials of engines whose times are given, by a clock that they move themselves."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from hypersparse_runtime import Graph, SparseModel, engine_selection
from hypersparse_runtime.engine_selection import LARGEST, LEAST_TRIALS, TRIALS, Fastest, trial
from hypersparse_runtime.graph import INPUT, Node

SHAPE = (2,)


class Clock:
    def __init__(self) -> None:
        self.cpu, self.wall = 0.0, 0.0
        self.rested = False  # since another engine's call


class Timed:
    """An engine that takes a known time, and knows the batches it got."""

    def __init__(self, name: str, clock: Clock, seconds: Callable[[int], float], idle: float = 0.0) -> None:
        self.name, self._clock, self._seconds, self._idle = name, clock, seconds, idle
        self.sizes: list[int] = []

    def run(self, images: np.ndarray, outputs: np.ndarray) -> None:
        self.sizes.append(len(images))
        outputs[...] = images
        self._clock.cpu += self._seconds(len(images))
        self._clock.wall += self._seconds(len(images)) + self._idle


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.wall += seconds
        clock.rested = True

    fake = SimpleNamespace(process_time=lambda: clock.cpu, perf_counter=lambda: clock.wall, sleep=sleep)
    monkeypatch.setattr(engine_selection, "time", fake)
    return clock


def test_each_size_has_its_fastest_engine_and_one_trial(clock: Clock) -> None:
    steady = Timed("steady", clock, lambda count: 3e-3 * count)
    starting = Timed("starting", clock, lambda count: 7e-3 + 1e-3 * count)  # the better one from 4 images up
    both = Fastest([steady, starting], SHAPE, SHAPE, threads=1)
    assert set(steady.sizes) == {1}, "single images are decided on at once, and nothing else"
    names = {count: both.engine_for(count).name for count in (1, 2, 3, 4, 7, 8, 31, 32, 33, 5000)}
    assert names == {count: "steady" if count < 4 else "starting" for count in names}
    assert sorted(set(steady.sizes)) == [1, 2, 4, 8, 16, LARGEST]
    tried = len(steady.sizes)
    images, outputs = np.ones((100, *SHAPE), np.float32), np.zeros((100, *SHAPE), np.float32)
    both.run(images, outputs)
    assert (len(steady.sizes), starting.sizes[-1]) == (tried, 100)
    assert outputs.all()


def test_quick_engines_are_tried_more_often_than_slow_ones(clock: Clock) -> None:
    quick, slow = Timed("quick", clock, lambda _: 1e-3), Timed("slow", clock, lambda _: 1.0)
    assert trial([quick], 1, SHAPE, SHAPE, threads=1) == [pytest.approx(1e-3)]
    assert len(quick.sizes) == 1 + TRIALS
    assert trial([quick, slow], 1, SHAPE, SHAPE, threads=1) == [pytest.approx(1e-3), pytest.approx(1.0)]
    assert len(slow.sizes) == 1 + LEAST_TRIALS


def test_with_one_thread_waiting_does_not_count(clock: Clock) -> None:
    waits, works = Timed("waits", clock, lambda _: 1e-3, idle=4e-3), Timed("works", clock, lambda _: 2e-3)
    assert Fastest([waits, works], SHAPE, SHAPE, threads=1).engine_for(1).name == "waits"
    two = Fastest([waits, works], SHAPE, SHAPE, threads=2)
    assert two.engine_for(1).name == "works"
    two.engine_for(1000)
    assert max(waits.sizes) == 2 * LARGEST


class Disturbed(Timed):
    """An engine that takes much longer while the threads of another one spin."""

    def run(self, images: np.ndarray, outputs: np.ndarray) -> None:
        super().run(images, outputs)
        if not self._clock.rested:
            self._clock.wall += 10 * self._seconds(len(images))


class Spins(Timed):
    """An engine whose threads spin after a call."""

    def run(self, images: np.ndarray, outputs: np.ndarray) -> None:
        super().run(images, outputs)
        self._clock.rested = False


def test_engines_of_several_threads_come_to_rest_in_between(clock: Clock) -> None:
    spins, better = Spins("spins", clock, lambda _: 3e-3), Disturbed("better", clock, lambda _: 1e-3)
    assert Fastest([spins, better], SHAPE, SHAPE, threads=2).engine_for(1).name == "better"


def test_many_threads_make_one_trial(clock: Clock) -> None:
    engine = Timed("one", clock, lambda _: 1e-3)
    fastest = Fastest([engine, Timed("two", clock, lambda _: 2e-3)], SHAPE, SHAPE, threads=1)
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        fastest.engine_for(16)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.sizes.count(16) == 1 + TRIALS


class Named:
    name = title = "named"

    def __init__(self, graph: Graph, *, threads: int) -> None:
        pass


def test_engines_that_run_for_long_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense kernel as large as its image took 18 s to load: every engine was run on it."""
    monkeypatch.setattr("hypersparse_runtime.sparse_model.trial", lambda *rest, **more: pytest.fail("engines were run"))
    monkeypatch.setattr("hypersparse_runtime.sparse_model.installed_engines", lambda: [Named, Named])
    monkeypatch.setattr("hypersparse_runtime.sparse_model.SURELY_TRIED", 2**16)
    weight = np.ones((1, 1, 33, 33), np.float32)
    whole = {"stride": (1, 1), "padding": (16, 16), "dilation": (1, 1), "groups": 1}
    graph = Graph((1, 100, 100), (Node("conv", (INPUT,), "y", {"weight": "w"}, whole),), {"w": weight})
    assert SparseModel(graph, threads=1).engine == "named"
    weight[:, :, 5:] = 0
    assert SparseModel(graph, threads=1).engine == "hypersparse"

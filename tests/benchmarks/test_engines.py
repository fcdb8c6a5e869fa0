import time
from dataclasses import replace

import pytest
import torch

from benchmarks import engines
from benchmarks.timing import Span, span_seconds, time_steps
from benchmarks.workloads import Effort, TrainingCase, workload_of
from hypersparse.training.machine import Machine

SMALL = replace(workload_of("resnet8"), shape=(3, 8, 8), images=64)
EFFORT = Effort(steps=3, warm_up_steps=1, batch_size=4, images=16)
MACHINE = Machine(device="cpu", engine="eager", threads=1)


@pytest.mark.filterwarnings("ignore:Pruning still cost")
@pytest.mark.parametrize("runs", [1, 2])
def test_each_phase_is_timed_alone_and_concurrently(runs: int) -> None:
    timings = engines.measure(TrainingCase(SMALL, "eager", runs), EFFORT, MACHINE)
    assert [timing.phase for timing in timings] == ["plain", "regularized", "masked"]
    for timing in timings:
        assert timing.step_seconds > 0
        assert timing.begin_seconds > 0
        assert timing.compile_seconds > 0
        assert timing.memory_bytes is None
        assert timing.steps == 3
    assert [timing.scoring_seconds > 0 for timing in timings] == [False, True, False]


def test_a_failing_run_stops_the_others_and_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    time_scoring = engines.time_scoring

    def fails_for_the_second(training: engines.Training, *others: object) -> Span:
        if training.seed == 1:
            raise RuntimeError("out of memory")
        return time_scoring(training, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(engines, "time_scoring", fails_for_the_second)
    with pytest.raises(RuntimeError, match="out of memory"):
        engines.measure(TrainingCase(replace(SMALL, phases=("plain",)), "eager", 3), EFFORT, MACHINE)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("runs", [1, 2])
def test_captured_steps_are_timed_alone_and_concurrently(runs: int) -> None:
    effort = Effort(steps=5, warm_up_steps=2, batch_size=4, images=None)
    machine = Machine(device="cuda", precision="bf16", engine="cudagraph")
    timings = engines.measure(TrainingCase(SMALL, "cudagraph", runs), effort, machine)
    assert all(timing.step_seconds > 0 and timing.memory_bytes for timing in timings)
    assert [timing.scoring_seconds > 0 for timing in timings] == [False, True, False]


@pytest.mark.filterwarnings("ignore")
def test_a_step_that_cannot_be_captured_raises_an_error() -> None:
    with pytest.raises(RuntimeError, match="could not be captured"):
        engines.measure(TrainingCase(SMALL, "cudagraph"), EFFORT, replace(MACHINE, engine="cudagraph"))


def test_wall_time_is_from_the_first_start_to_the_last_end() -> None:
    assert span_seconds([Span(0.0, 4.0, 2), Span(1.0, 5.0, 2)]) == 2.5


def test_on_a_cpu_the_median_step_counts_and_slow_steps_stop_early() -> None:
    naps = iter([0.0, 0.2, 0.0])
    span = time_steps(lambda: time.sleep(next(naps)), 3, torch.device("cpu"))
    assert span.times == 3
    assert span_seconds([span]) < 0.1
    assert time_steps(lambda: time.sleep(0.01), 100, torch.device("cpu"), limit=0.02).times < 4

"""Timing of several engines in turns, so that all of them see the same disturbances."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.inference_engines import InferenceEngine

TURN_SECONDS = 0.004  # CPU time of an engine's turn, at least one call
MAX_CALLS = 20  # per turn
# Pause before each turn with several threads. PyTorch's threads wait busily after a call, 9 ms of CPU time were
# measured; OpenVINO's take 1 ms, those of the others nothing.
SETTLE_SECONDS = 0.03
LONG_SECONDS = 0.1  # a call of this length is not changed by a core that was idle


@dataclass
class CallTimes:
    """Seconds of each call of an engine: wall-clock time and CPU time of the process."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def time_in_turns(
    engines: Sequence[InferenceEngine],
    images: NDArray[np.float32],
    rounds: int,
    *,
    pause: float = 0.0,
    until: float = math.inf,
) -> list[CallTimes]:
    """The times of each engine, which all make a few calls in each round.

    No round begins that would end after the time `until` of `time.perf_counter`, except the first one.
    """
    times, longest = [CallTimes() for _ in engines], 0.0
    for number in range(rounds):
        began = time.perf_counter()
        if number and began + longest > until:
            break
        for engine, kept in zip(engines, times, strict=True):
            if pause:
                time.sleep(pause)
                if not kept.wall or kept.wall[-1] < LONG_SECONDS:
                    engine.predict(images)  # a core is slow after a pause
            _turn_(kept, engine, images)
        longest = max(longest, time.perf_counter() - began)
    return times


def _turn_(kept: CallTimes, engine: InferenceEngine, images: NDArray[np.float32]) -> None:
    spent = 0.0
    for _ in range(MAX_CALLS):
        wall, cpu = time.perf_counter(), time.process_time()
        engine.predict(images)
        kept.cpu.append(time.process_time() - cpu)
        kept.wall.append(time.perf_counter() - wall)
        spent += kept.cpu[-1]
        if spent >= TURN_SECONDS:
            return

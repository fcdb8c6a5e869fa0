"""Select the fastest of several engines for a batch size by a short trial."""

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

TRIALS = 9  # of each engine, in turns
LEAST_TRIALS, ENOUGH_SECONDS = 3, 0.5  # no further ones after so long
REST = 0.03  # seconds: OpenVINO's threads take 1 ms of CPU time after a call, those of the others nothing
LARGEST = 32  # images of a trial for each thread: from there on an image takes every engine as long as in any batch


class Engine(Protocol):
    """An engine that runs a network."""

    name: str

    def run(self, images: NDArray[Any], outputs: NDArray[Any]) -> None:
        """Run a dense float32 batch."""


class Fastest:
    """Runs every batch on the engine that is the fastest for its size.

    The fastest engine depends on the size: dense networks run single images faster in ONNX Runtime, and batches often
    in OpenVINO. The engine for single images is selected at once, the one for batches at the first batch between two
    powers of two.
    """

    name = "fastest"

    def __init__(
        self, engines: Sequence[Engine], input_shape: Sequence[int], output_shape: Sequence[int], *, threads: int
    ) -> None:
        self._engines, self._shapes, self._threads = engines, (input_shape, output_shape), threads
        self._chosen: dict[int, Engine] = {}
        self._lock = threading.Lock()
        self.engine_for(1)

    def run(self, images: NDArray[Any], outputs: NDArray[Any]) -> None:
        """Run a dense float32 batch."""
        self.engine_for(len(images)).run(images, outputs)

    def engine_for(self, images: int) -> Engine:
        """The engine for batches of this size."""
        size = min(1 << images.bit_length() - 1, LARGEST * self._threads)
        if size not in self._chosen:
            with self._lock:
                if size not in self._chosen:
                    seconds = trial(self._engines, size, *self._shapes, threads=self._threads)
                    self._chosen[size] = self._engines[int(np.argmin(seconds))]
        return self._chosen[size]


def trial(
    engines: Sequence[Engine], images: int, input_shape: Sequence[int], output_shape: Sequence[int], *, threads: int
) -> list[float]:
    """The seconds that each engine takes for so many images.

    With one thread its CPU time is measured, which other programs do not change. With several threads the wall time is
    measured, after the threads of the previous engine have stopped.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    batch = np.zeros((images, *input_shape), dtype=np.float32)
    outputs = np.empty((images, *output_shape), dtype=np.float32)
    for engine in engines:  # warms up
        engine.run(batch, outputs)
    best, start = [np.inf] * len(engines), time.perf_counter()
    for turn in range(TRIALS):
        if turn >= LEAST_TRIALS and time.perf_counter() - start > ENOUGH_SECONDS:
            break
        for number, engine in enumerate(engines):
            if threads > 1:
                time.sleep(REST)
                engine.run(batch, outputs)
            began = clock()
            engine.run(batch, outputs)
            best[number] = min(best[number], clock() - began)
    return best

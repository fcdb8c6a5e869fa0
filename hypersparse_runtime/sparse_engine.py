"""The sparse engine: programs for one image and for many, run by threads that share the images."""

import ctypes
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf

import numpy as np

from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.int8 import WORTH, count_int8, with_int8
from hypersparse_runtime.kernel_library import Kernel
from hypersparse_runtime.kernel_program import Program, write_program
from hypersparse_runtime.lazy_bias import with_lazy_bias
from hypersparse_runtime.plane_layout import ALIGNED, place, rows_fit
from hypersparse_runtime.sparse_layers import Array, Network
from hypersparse_runtime.tuning import MOST_MEASURED, TILES, VECTOR, new_workspace, prepare_, tune_
from hypersparse_runtime.winograd import with_winograd

MANY = 8  # images from which side by side may pay
ROUNDS, LONG = 3, 0.2  # of a program that is timed, and seconds after which no other round begins
SPEED = 4e9  # operations a second, where nothing is measured
MAX_SLOWDOWN = 1.3  # times as slow as one image after another: no choice of variants makes up for that


class Runner:
    """A program, and a workspace for each thread that runs it."""

    def __init__(self, program: Program, kernel: Kernel) -> None:
        self.program, self._kernel = program, kernel
        self._spaces: list[tuple[Array, int]] = []  # pop and append are atomic
        self._steps, self._tables = program.steps.ctypes.data, program.tables.ctypes.data
        self._output_size = int(np.prod(program.output_shape))
        self.seconds = measured(self)[0]

    def run(self, images: int, outputs: int, count: int) -> None:
        """Run `count` images at an address and write to another address; both hold dense float32."""
        program = self.program
        try:
            space = self._spaces.pop()
        except IndexError:
            workspace = new_workspace(program)
            space = (workspace, workspace.ctypes.data)
        self._kernel.run(
            self._steps,
            len(program.steps),
            self._tables,
            space[1],
            images,
            outputs,
            program.image_size,
            self._output_size,
            count,
            program.lanes,
        )
        self._spaces.append(space)

    def timed(self, blocks: int) -> float:
        """CPU seconds of this thread for one block of images, averaged over `blocks` of them."""
        count = blocks * self.program.lanes
        images = np.zeros((count, self.program.image_size), dtype=np.float32)
        outputs = np.zeros((count, self._output_size), dtype=np.float32)
        began = time.thread_time()
        self.run(images.ctypes.data, outputs.ctypes.data, count)
        return (time.thread_time() - began) / blocks


def measured(*runners: Runner) -> list[float]:
    """The shortest time of each program, measured in turns on equally many images.

    Programs that run for long are run once, or not at all.
    """
    if any(runner.program.operations > MOST_MEASURED for runner in runners):
        return [runner.program.operations / SPEED for runner in runners]
    most, began = max(runner.program.lanes for runner in runners), time.perf_counter()
    best = [inf] * len(runners)
    for _ in range(ROUNDS):
        times = [runner.timed(most // runner.program.lanes) for runner in runners]
        best = [min(pair) for pair in zip(best, times, strict=True)]
        if time.perf_counter() - began > LONG:
            break
    return best


class SparseEngine:
    """Computes the nonzero weights of a network, from which dead channels have been removed."""

    name = "hypersparse"

    def __init__(
        self, network: Network, kernel: Kernel, *, threads: int, levels: tuple[str, ...], int8: bool = False
    ) -> None:
        self._kernel, self._levels, self.threads = kernel, levels, threads
        lazy = with_lazy_bias(network)
        self._network = with_winograd(lazy)
        self._image_size = int(np.prod(network.shapes["input"]))
        self._output_size = int(np.prod(network.output_shape))
        self._one = self._made(1)
        self.int8_layers = 0  # the number of layers of single images that are in int8
        if int8 and kernel.has_int8 and VECTOR[levels[-1]] == ALIGNED:
            with suppress(GraphError):  # it may need too much memory
                self._try_int8(with_winograd(with_int8(lazy)))
        self._many: Runner | None = None
        self._pool: tuple[int, ThreadPoolExecutor] | None = None  # and whose: a fork takes no threads along
        self._lock = threading.Lock()

    def _try_int8(self, network: Network) -> None:
        """Take the network with layers in int8 for single images if it is faster."""
        placed = place(network, rows=True, folded=True)
        layers, widest = count_int8(placed), self._levels[-1]
        if not layers or not rows_fit(placed, VECTOR[widest], TILES[widest][1]):
            return
        runner = self._tuned(write_program(placed, 1, VECTOR[widest]))
        self._one.seconds, runner.seconds = measured(self._one, runner)
        if runner.seconds < WORTH * self._one.seconds:
            self._one, self.int8_layers = runner, layers

    def run(self, images: Array, outputs: Array) -> None:
        """Run a dense float32 batch."""
        count = len(images)
        source, target = _address(images), _address(outputs)
        if count == 1:
            self._one.run(source, target, 1)
            return
        parts = self._parts(count)
        jobs = [
            (runner, source + 4 * first * self._image_size, target + 4 * first * self._output_size, number)
            for runner, first, number in parts
        ]
        if len(jobs) == 1:
            jobs[0][0].run(*jobs[0][1:])
            return
        waiting = [self._threads().submit(runner.run, *rest) for runner, *rest in jobs[1:]]
        jobs[0][0].run(*jobs[0][1:])
        for each in waiting:
            each.result()

    def _parts(self, count: int) -> list[tuple[Runner, int, int]]:
        """The runners and their images, `(runner, first, count)`, one part for each thread."""
        threads = min(self.threads, count)
        runner, size = self._one, 1
        if count >= MANY:
            many = self._side_by_side()
            lanes = many.program.lanes
            blocks = -(-count // lanes)
            if -(-blocks // threads) * many.seconds < -(-count // threads) * self._one.seconds:
                runner, size = many, lanes
        blocks = -(-count // size)
        parts, first = [], 0
        for thread in range(threads):
            share = (blocks * (thread + 1) // threads - blocks * thread // threads) * size
            share = min(share, count - first)
            if share > 0:
                parts.append((runner, first, share))
            first += share
        return parts

    def _side_by_side(self) -> Runner:
        if self._many is None:
            with self._lock:
                if self._many is None:
                    self._many = self._made_many()
        return self._many

    def _made_many(self) -> Runner:
        """A runner for interleaved images; the one for single images if that would take too much memory."""
        if self._network.one_by_one:
            return self._one
        try:
            many = self._made(max(8, VECTOR[self._levels[-1]]))
        except GraphError:
            return self._one
        self._one.seconds, many.seconds = measured(self._one, many)
        return many

    def _made(self, lanes: int) -> Runner:
        """The program for `lanes` interleaved images, in the faster layout."""
        if lanes > 1:
            return self._many_made(lanes)
        widest = self._levels[-1]
        placed = place(self._network, rows=True, folded=VECTOR[widest] == ALIGNED)
        runners = []
        if rows_fit(placed, VECTOR[widest], TILES[widest][1]):
            runners.append(self._tuned(write_program(placed, 1, VECTOR[widest])))
        if not runners or VECTOR[widest] < ALIGNED:  # rows of many short vectors leave few registers for a tile
            with suppress(*([GraphError] if runners else [])):  # it may need too much memory in one layout alone
                runners.append(self._tuned(write_program(place(self._network, rows=False), 1, VECTOR[widest])))
        return min(runners, key=lambda runner: runner.seconds)

    def _many_made(self, lanes: int) -> Runner:
        program = write_program(place(self._network, rows=False), lanes, VECTOR[self._levels[-1]])
        prepare_(program, self._kernel, self._levels)
        made = Runner(program, self._kernel)
        return made if made.seconds > MAX_SLOWDOWN * lanes * self._one.seconds else self._tuned(program)

    def _tuned(self, program: Program) -> Runner:
        prepare_(program, self._kernel, self._levels)
        tune_(program, self._kernel, self._levels)
        return Runner(program, self._kernel)

    def _threads(self) -> ThreadPoolExecutor:
        process, pool = os.getpid(), self._pool
        if pool is None or pool[0] != process:
            with self._lock:
                pool = self._pool
                if pool is None or pool[0] != process:
                    pool = process, ThreadPoolExecutor(self.threads - 1, thread_name_prefix="hypersparse")
                    self._pool = pool
        return pool[1]


def _address(array: Array) -> int:
    """The address of an array; by its buffer that takes 0.8 us, by numpy's attributes 2.0 to 2.6."""
    if array.flags.writeable:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    address: int = array.__array_interface__["data"][0]
    return address

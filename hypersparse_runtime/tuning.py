"""Select the loop order, tile and instruction set of each convolution by short measurements at load.

Every choice gives the same bits; only the time differs.
"""

import time
from collections.abc import Iterator
from math import ceil

import numpy as np

from hypersparse_runtime.kernel_library import Kernel
from hypersparse_runtime.kernel_program import Program
from hypersparse_runtime.kernel_tables import KINDS
from hypersparse_runtime.plane_layout import ALIGNED
from hypersparse_runtime.shared_loads import MAX_TILE
from hypersparse_runtime.sparse_layers import Array

_NAMES = ("conv", "conv_few_taps", "conv_shared_loads", "conv_int8")
CONV, FEW_TAPS, SHARED_LOADS, INT8 = (KINDS.index(name) for name in _NAMES)
TUNED = (CONV, FEW_TAPS, SHARED_LOADS, INT8)
VECTOR = {"plain": 4, "neon": 4, "avx2": 8, "avx512": 16}  # floats
TILES = {  # most vectors in a tile, by the number of chains
    "plain": {1: 7, 2: 4, 4: 2},
    "neon": {1: 14, 2: 8, 4: 4},
    "avx2": {1: 7, 2: 4, 4: 2},
    "avx512": {1: 14, 2: 8, 4: 4},
}
FEW_TAPS_TILES = {"plain": (8, 4), "neon": (8, 4), "avx2": (8, 4), "avx512": (24, 16, 8)}
REPEATS, ROUNDS = 3, 5  # of each variant: other programs may take the core away
BUDGET = 0.3  # seconds for a program's variants; ResNet-50 at 99 % needs 0.3
MOST_MEASURED = 2**31  # operations of a program that is run to measure it: some 0.5 s
WORTH = 0.92  # of the time with the widest vectors that another variant must need: less is noise as often as not
RUNS = ("segments", "segment_stride", "segment_length", "pad_first", "pad_length", "pad_stride", "pad_end")


def new_workspace(program: Program) -> Array:
    """A zeroed workspace, aligned for the widest vectors."""
    raw = np.zeros(program.workspace_floats + ALIGNED, dtype=np.float32)
    skip = -raw.ctypes.data // 4 % ALIGNED
    return raw[skip : skip + program.workspace_floats]


def prepare_(program: Program, kernel: Kernel, levels: tuple[str, ...]) -> None:
    """Set every step to a good default: the widest vectors, and tiles that stay in the cache."""
    program.steps["level"] = kernel.levels.index(levels[-1])
    for number in np.flatnonzero(np.isin(program.steps["kind"], TUNED)):
        variants = [_copy(each) for each in _variants(_copy(program.steps[number : number + 1]), kernel, levels[-1:])]
        program.steps[number] = next((each for each in variants if each["tile_outer"][0]), variants[0])[0]


def tune_(program: Program, kernel: Kernel, levels: tuple[str, ...], *, budget: float = BUDGET) -> None:
    """Set every step to its fastest variant, the slowest steps first.

    After `budget` seconds the other steps keep their defaults. So do all steps of a program that runs for long.
    """
    if program.operations > MOST_MEASURED:
        return
    workspace, began = new_workspace(program), time.perf_counter()

    def seconds_of(step: Array, repeats: int) -> float:
        return float(kernel.time(step.ctypes.data, program.tables.ctypes.data, workspace.ctypes.data, repeats))

    rounds, repeats = (ROUNDS, REPEATS) if program.lanes == 1 else (1, 2)  # many images take long enough
    tuned = np.flatnonzero(np.isin(program.steps["kind"], TUNED))
    once = np.array([seconds_of(_copy(program.steps[number : number + 1]), 1) for number in tuned])
    for index in np.argsort(-once):
        if time.perf_counter() - began > budget:
            return
        number = int(tuned[index])
        step, able = _copy(program.steps[number : number + 1]), _able(program, number, levels)
        variants = [_copy(each) for each in _variants(step, kernel, able)]
        if time.perf_counter() - began + once[index] * len(variants) * rounds * repeats > budget:
            continue
        seconds = np.full(len(variants), np.inf)
        for _ in range(rounds if len(variants) > 1 else 0):
            for place, variant in enumerate(variants):
                seconds[place] = min(seconds[place], seconds_of(variant, repeats))
        program.steps[number] = variants[_chosen(variants, seconds)][0]


def _copy(step: Array) -> Array:
    """A copy as whole numbers: numpy takes 14 us for a record of 46 fields, a sixth of loading many layers."""
    return step.view(np.int64).copy().view(step.dtype)


def _able(program: Program, number: int, levels: tuple[str, ...]) -> tuple[str, ...]:
    """The levels without narrower instruction sets, if the step shifts sums further than one of their vectors."""
    step = program.steps[number]
    if len(levels) < 2 or step["kind"] != CONV or step["shifts"] < 0:
        return levels
    distances = program.tables[step["distances"] : step["distances"] + step["groups"]]
    return levels if np.abs(distances).max() <= VECTOR[levels[-2]] else levels[-1:]


def _chosen(variants: list[Array], seconds: Array) -> int:
    """The fastest variant; one with narrower vectors only if it is clearly faster."""
    widest = np.array([each["level"][0] == variants[0]["level"][0] for each in variants])
    handicapped = np.where(widest, seconds * WORTH, seconds)
    return int(handicapped.argmin())


def _variants(step: Array, kernel: Kernel, levels: tuple[str, ...]) -> Iterator[Array]:
    for name in reversed(levels[-2:]):
        step["level"] = kernel.levels.index(name)
        if step["kind"][0] == FEW_TAPS:
            yield from _few_taps_tilings(step, name)
            continue
        if step["kind"][0] in (SHARED_LOADS, INT8):
            if name == levels[-1]:
                yield from _shared_tilings(step)
            continue
        for run in _runs(step):
            yield from _tilings(run, name)


def _few_taps_tilings(step: Array, level: str) -> Iterator[Array]:
    vectors = -(-int(step["segment_length"][0]) // VECTOR[level])
    for tile in FEW_TAPS_TILES[level]:
        for outer in (1, 0) if tile < vectors else (1,):
            step["tile"], step["tile_outer"] = tile, outer
            yield step
        if tile >= vectors:
            return


def _shared_tilings(step: Array) -> Iterator[Array]:
    """The longest tiles, and tiles of half the length, of which more channels stay in the first cache."""
    vectors = -(-int(step["segment_length"][0]) // ALIGNED)
    whole = max(1, int(step["out_pitch"][0]) // ALIGNED)
    fewest = ceil(vectors / (MAX_TILE // whole * whole))
    for tiles in (fewest, 2 * fewest) if fewest > 1 else (fewest,):
        step["tile"] = ceil(vectors / tiles / whole) * whole
        yield step


def _runs(step: Array) -> Iterator[Array]:
    """By rows; if rows are short, also in one run."""
    yield step
    if step["segments"][0] > 1:
        whole = _copy(step)
        lanes, width, pitch = (int(step[name][0]) for name in ("lanes", "out_width", "out_pitch"))
        run = ((int(step["out_height"][0]) - 1) * pitch + width) * lanes
        whole["segments"], whole["segment_length"] = 1, run
        pads = (width * lanes, (pitch - width) * lanes, pitch * lanes, run)
        for field, value in zip(RUNS[3:], pads, strict=True):
            whole[field] = value
        yield whole


def _tilings(step: Array, level: str) -> Iterator[Array]:
    most = TILES[level][int(step["chains"][0])]
    vectors = -(-int(step["segment_length"][0]) // VECTOR[level])
    whole = max(1, int(step["out_pitch"][0]) // VECTOR[level]) if step["shifts"][0] >= 0 else 1  # rows are not cut
    if whole > most:
        return
    fewest = -(-vectors // (most // whole * whole))
    tried = set()
    for tiles, outer in ((fewest, 0), (fewest, 1), (2 * fewest, 1), (3 * fewest, 1)):
        tile = min(ceil(vectors / tiles / whole) * whole, most // whole * whole)
        if (tile, outer) in tried or (outer and tile >= vectors and step["segments"][0] == 1):
            continue
        tried.add((tile, outer))
        step["tile"], step["tile_outer"] = tile, outer
        yield step

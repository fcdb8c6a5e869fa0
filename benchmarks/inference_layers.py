"""Times of a sparse network's layers in the runtime: `python -m benchmarks.inference_layers vgg19 0.98`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inference import peak_gflops
from benchmarks.networks import MODELS, BenchmarkNetwork, load_or_generate
from hypersparse.errors import HypersparseError
from hypersparse_runtime import SparseModel
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.kernel_program import SUMS, Program
from hypersparse_runtime.kernel_tables import KINDS
from hypersparse_runtime.shared_loads import PATTERN_ORDER, PATTERNS
from hypersparse_runtime.sparse_engine import SparseEngine
from hypersparse_runtime.tuning import new_workspace

ROUNDS = 60
MASKS = Path(__file__).with_name("masks")
QUANTILE = 0.25  # of the rounds: other programs only make a step slower
MOVES = ("pack", "unpack")  # they need images and outputs


@dataclass(frozen=True)
class LayerTime:
    """The time of one convolution or linear layer, or of all steps between them (without a side)."""

    side: int
    products: int  # that it makes
    microseconds: float
    transformed: bool = False


def layer_times(model: SparseModel, *, rounds: int = ROUNDS) -> list[LayerTime]:
    """The layers in their order, then all other steps together, each run by itself in turns."""
    engine = model._engine
    assert isinstance(engine, SparseEngine)
    program = engine._one.program
    seconds = step_seconds(program, rounds)
    layers, rest = list[LayerTime](), 0.0
    parts = _parts(program)
    for layer, steps in groupby(range(len(parts)), key=parts.__getitem__):
        found = list(steps)
        spent = 1e6 * float(seconds[found].sum())
        if layer < 0:
            rest += spent
        else:
            layers.append(_layer(program, found, spent))
    return [*layers, LayerTime(0, 0, rest)]


def step_seconds(program: Program, rounds: int) -> np.ndarray[Any, Any]:
    """Seconds of each step, all of them one after another in each round."""
    kernel, workspace = load_kernel(), new_workspace(program)
    steps = [program.steps[number : number + 1].copy() for number in range(len(program.steps))]
    times = np.zeros((rounds, len(steps)))
    for row in times:
        for number, step in enumerate(steps):
            if KINDS[int(step["kind"][0])] not in MOVES:
                row[number] = kernel.time(step.ctypes.data, program.tables.ctypes.data, workspace.ctypes.data, 1)
    return np.quantile(times, QUANTILE, axis=0)


def _parts(program: Program) -> list[int]:
    """The layer of each step; -1 for those between layers. Steps that write one value are one layer."""
    parts, layer, inside, output = list[int](), -1, False, None
    for step in program.steps:
        kind = KINDS[int(step["kind"])]
        if kind == "winograd_input" or (kind in SUMS and not inside and int(step["output"]) != output):
            layer += 1
        inside = kind != "winograd_output" and (inside or kind == "winograd_input")
        summed = kind in SUMS or inside or kind == "winograd_output"
        output = int(step["output"]) if summed else None
        parts.append(layer if summed else -1)
    return parts


def _layer(program: Program, numbers: Sequence[int], microseconds: float) -> LayerTime:
    last, products = program.steps[numbers[-1]], 0
    for number in numbers:
        step = program.steps[number]
        if KINDS[int(step["kind"])] in SUMS:
            products += _entries(program, step) * int(step["out_height"]) * int(step["out_width"])
    transformed = KINDS[int(last["kind"])] == "winograd_output"
    return LayerTime(int(last["out_height"]), products, microseconds, transformed)


def _entries(program: Program, step: Any) -> int:
    shared = KINDS[int(step["kind"])] == "conv_shared_loads"
    cells = int(step["rows"]) * (int(step["blocks"]) * PATTERNS if shared else int(step["groups"]))
    counts = np.diff(program.tables[int(step["starts"]) : int(step["starts"]) + cells + 1])
    if not shared:
        return int(counts.sum())
    sizes = np.array([1 + pattern.bit_count() for pattern in PATTERN_ORDER])
    return int((counts.reshape(-1, PATTERNS) // sizes * (sizes - 1)).sum())


def table_lines(network: BenchmarkNetwork, layers: Sequence[LayerTime], peak: float) -> Iterator[str]:
    """A table in Markdown: a row for each layer."""
    weighted = [network.graph.array(node, "weight") for node in network.graph.nodes if "weight" in node.tensors]
    kept = [weight for weight in weighted if weight is not None and weight.ndim > 1]
    total = sum(each.microseconds for each in layers)
    yield "| layer | plane | weights kept | million products, direct | made | us | share | of the peak |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for number, (weight, each) in enumerate(zip(kept, layers, strict=False), 1):
        count, side = np.count_nonzero(weight), f"{each.side}x{each.side}"
        made = f"{each.products / 1e6:.3f}{' (Winograd)' if each.transformed else ''}"
        share = f"{each.microseconds:.1f} | {each.microseconds / total:.1%}"
        size, reached = "x".join(map(str, weight.shape[:2])), 2e-3 * each.products / each.microseconds / peak
        amounts = f"{count / weight.size:.1%} | {count * each.side**2 / 1e6:.3f} | {made}"
        yield f"| {number}, {size} | {side} | {amounts} | {share} | {reached:.0%} |"
    yield f"| all other steps | | | | | {layers[-1].microseconds:.1f} | {layers[-1].microseconds / total:.1%} | |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("sparsity", type=float)
    options = parser.parse_args()
    try:
        network = load_or_generate(options.model, options.sparsity, MASKS)
    except HypersparseError as error:
        parser.error(str(error))
    peak = peak_gflops()
    assert peak is not None
    layers = layer_times(SparseModel(network.graph, engine="hypersparse", threads=1))
    total = sum(each.microseconds for each in layers)
    heading = f"{options.model} at {options.sparsity:.1%}: {total:.0f} us in all steps; peak {peak:.1f} GFLOP/s"
    sys.stdout.write("\n".join([heading, "", *table_lines(network, layers, peak), ""]))


if __name__ == "__main__":
    main()

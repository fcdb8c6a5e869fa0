"""Times the fused convolution kernels on a CUDA device in many tilings, alone and for several runs at once.

    python -m benchmarks.fused_tilings [--models resnet32,vgg19] [--runs 1,5] [--seconds 200] [--quick]

Every figure is the mean of calls that follow each other in one CUDA graph, in bf16, on changing images. The printed
lines belong into `hypersparse/training/fused/tilings.py`. Each tiling is also compared with plain PyTorch.
"""

import argparse
import itertools
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait

import torch
from torch import Tensor

from benchmarks.conv_tilings import candidates as weight_candidates
from hypersparse import models
from hypersparse.training.fused import tilings
from hypersparse.training.fused.network import _branches, activation_sizes, convolution_of
from hypersparse.training.fused.operations import Norm, Normed, PlainOperations
from hypersparse.training.fused.tilings import Tiles, pixel_block
from hypersparse.training.fused.trace import trace_network
from hypersparse.training.kernels.conv_tiling import Convolution, Tiling, key_of

CALLS, REPLAYS, SETS = 12, 4, 4
KINDS = ("forward", "data", "weight")
TABLES = {"forward": tilings.FORWARD, "data": tilings.DATA, "weight": tilings.WEIGHTS}
WORST = 0.02  # relative error in bf16
Job = tuple[str, Convolution, Tiles | Tiling]


def shapes_of(name: str, side: int) -> dict[Convolution, int]:
    """How often each convolution occurs in a network at batch 64."""
    model = models.build(name, shape=(3, side, side), classes=10, options={})
    traced = trace_network(model, (3, side, side))
    assert traced is not None
    sizes = activation_sizes(traced.activations, 64, (3, side, side))
    found: dict[Convolution, int] = {}
    for branch in _branches(traced):
        if branch.conv is not None:
            shape = convolution_of(branch.conv, 64, sizes[branch.source])
            found[shape] = found.get(shape, 0) + 1
    return found


def candidates(kind: str, shape: Convolution, *, quick: bool) -> Iterator[Tiles | Tiling]:
    """Tilings worth a try."""
    if kind == "weight":
        yield from weight_candidates(shape, quick=quick)[: 12 if quick else 90]
        return
    pixels = shape.pixels if kind == "forward" else shape.batch * shape.height * shape.width // shape.stride**2
    made, summed = (shape.filters, shape.channels) if kind == "forward" else (shape.channels, shape.filters)
    for block, across, deep, warps, stages in itertools.product(
        (64, 128, 256),
        {min(made & -made, n) for n in (32, 64, 128)},
        {min(summed & -summed, n) for n in (32, 64, 128)},
        (4, 8), (3, 4),
    ):  # fmt: skip
        shared = stages * (block + across) * deep * 2
        sums = block * across // (32 * warps)
        if pixel_block(pixels, block) != block or shared > 200_000 or not 16 <= sums <= 128:
            continue
        if quick and stages != 3:
            continue
        sides = (across, deep) if kind == "forward" else (deep, across)
        yield Tiles(block, *sides, warps, stages)


def inputs(kind: str, shape: Convolution, runs: int) -> Callable[[int, object], Tensor]:
    """A function that makes call number `n` of a kind with some operations."""
    size, filters = shape.batch, shape.filters
    inside, outside = (
        (size, shape.height, shape.width, shape.channels),
        (size, shape.out_height, shape.out_width, filters),
    )

    def random(*sides: int) -> Tensor:
        return torch.randn(runs, *sides, device="cuda").bfloat16()

    def flat(count: int) -> Tensor:
        return torch.ones(runs, count, device="cuda")

    def norm(count: int) -> Norm:
        saved = torch.rand(runs, 2, count, device="cuda")
        return Norm(*(flat(count) for _ in range(4)), None, flat(count), flat(count), saved, 0.1, 1e-5)

    weights = random(filters, shape.side, shape.side, shape.channels) * 0.1
    images = [random(*inside).relu() for _ in range(SETS)]
    gradients = [random(*outside) for _ in range(SETS)]
    before = Normed(norm(shape.channels), random(*inside), flat(1), 1)
    after, found = norm(filters), torch.empty(weights.shape, device="cuda")

    def call(number: int, operations: object) -> Tensor:
        image, gradient = images[number % SETS], gradients[number % SETS]
        if kind == "forward":
            return operations.conv(shape, image, weights, after).values  # type: ignore[attr-defined]
        if kind == "data":
            made = operations.conv_relu_gradient(shape, gradient, weights, image, image, before, None)  # type: ignore[attr-defined]
            return made.gradients
        operations.conv_weight_gradient_(shape, image, gradient, found)  # type: ignore[attr-defined]
        return found

    return call


def microseconds(call: Callable[[int], Tensor]) -> float:
    """Of one call, in a graph of many."""
    call(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(CALLS):
            call(number)
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / (CALLS * REPLAYS)


def compile_one(job: Job) -> None:
    """Fill Triton's cache, in a process of its own."""
    from hypersparse.training.fused.triton_operations import TritonOperations

    kind, shape, tiling = job
    TABLES[kind][key_of(shape)] = tiling  # type: ignore[assignment]
    try:
        inputs(kind, shape, 1)(0, TritonOperations())
    except Exception as error:  # the timing will say it
        print("compile", job, str(error).splitlines()[:1], file=sys.stderr)


def main() -> None:
    """Print the fastest tilings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="resnet32")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--runs", default="1,5")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compile", action="store_true", help="only fill Triton's cache")
    options = parser.parse_args()
    began = time.monotonic()
    counts = [int(each) for each in options.runs.split(",")]
    shapes: dict[Convolution, int] = {}
    for name in options.models.split(","):
        shapes |= shapes_of(name, options.side)
    jobs = [
        (kind, shape, tiling)
        for shape in shapes
        for kind in KINDS
        if kind != "data" or shape.channels > 16
        for tiling in candidates(kind, shape, quick=options.quick or shapes[shape] == 1)
    ]
    with ProcessPoolExecutor(14, mp_context=multiprocessing.get_context("spawn")) as pool:
        _, late = wait([pool.submit(compile_one, job) for job in jobs], timeout=options.seconds * 0.5)
        for future in late:
            future.cancel()
    print(f"{len(jobs)} tilings compiled but {len(late)} in {time.monotonic() - began:.0f} s", flush=True)
    if options.compile:
        return
    from hypersparse.training.fused.triton_operations import TritonOperations

    operations = TritonOperations()
    for kind, shape in dict.fromkeys((kind, shape) for kind, shape, _ in jobs):
        if time.monotonic() - began > options.seconds:
            print("out of time")
            return
        report(kind, shape, [each for k, s, each in jobs if (k, s) == (kind, shape)], counts, operations, shapes[shape])


def report(
    kind: str, shape: Convolution, found: list[Tiles | Tiling], counts: list[int], operations: object, times: int
) -> None:
    """Time the tilings of one kernel and shape, and print the best line."""
    calls = {runs: inputs(kind, shape, runs) for runs in counts}
    expected = calls[counts[0]](0, PlainOperations()).float().clone()
    rows: dict[Tiles | Tiling, list[float]] = {}
    table = TABLES[kind]
    default = {"forward": tilings.forward_tiles, "data": tilings.data_tiles, "weight": tilings.weight_tiling}[kind](
        shape
    )  # type: ignore[operator]
    for tiling in dict.fromkeys([default, *found]):
        table[key_of(shape)] = tiling  # type: ignore[assignment]
        try:
            apart = calls[counts[0]](0, operations).float() - expected
            error = float(apart.norm() / expected.norm())
            if not error < WORST:
                print(f"WRONG {kind} {shape} {tiling}: {error:.3g}", flush=True)
                continue
            rows[tiling] = [microseconds(lambda number, call=call: call(number, operations)) for call in calls.values()]
        except Exception as error:  # one of many
            print(f"failed {kind} {tiling}: {(str(error).splitlines() or [''])[0][:100]}", flush=True)
    table.pop(key_of(shape), None)
    if not rows:
        return
    least = [min(times[number] for times in rows.values()) for number in range(len(counts))]
    ranked = sorted(rows, key=lambda tiling: sum(time / best for time, best in zip(rows[tiling], least, strict=True)))
    best = ranked[0]
    said = ", ".join(f"{time:.1f}" for time in rows[best])
    usual = ", ".join(f"{time:.1f}" for time in rows.get(default, []))
    lowest = ", ".join(f"{time:.1f}" for time in least)
    print(f"{kind} {times}x    {key_of(shape)}: {best},  # {said} us; default {usual}; lowest {lowest}", flush=True)


if __name__ == "__main__":
    main()

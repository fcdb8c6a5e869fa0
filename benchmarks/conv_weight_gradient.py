"""Times gradients of convolution weights on a CUDA device: cuDNN's, and those of our kernel in many tilings.

    python benchmarks/conv_weight_gradient.py [--quick] [--models resnet32,vgg19] [--seconds 50]

Every figure is the mean of calls that follow each other in one CUDA graph, in bf16 and channels-last. As in a training
step, the images of each call are others, which the cache holds no more, and the gradients of the output are the same.
"""

import argparse
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor, nn

from hypersparse import models
from hypersparse.errors import HypersparseError
from hypersparse.training.conv_tiling import Convolution, Tiling, kernel_takes, key_of, shared_out, tile_of, tiling_of

CALLS, REPLAYS = 20, 5
PROGRAMS = (132, 264, 396, 528, 792)
VARIANTS = [  # filters, channels, taps, pixels a block, warps, stages; the first half is what --quick tries
    (64, 64, 3, 64, 4, 1),
    (64, 64, 3, 64, 8, 3),
    (64, 32, 3, 64, 4, 3),
    (32, 32, 3, 64, 2, 1),
    (32, 32, 3, 64, 2, 3),
    (32, 32, 3, 128, 2, 3),
    (64, 64, 1, 64, 4, 3),
    (32, 32, 1, 64, 2, 3),
    (64, 64, 3, 32, 4, 4),
    (64, 64, 3, 64, 4, 2),
    (64, 64, 3, 128, 8, 2),
    (64, 64, 9, 32, 8, 2),
    (64, 32, 9, 32, 4, 3),
    (64, 32, 9, 64, 4, 1),
    (128, 64, 3, 64, 8, 3),
    (128, 128, 1, 64, 8, 3),
    (32, 64, 3, 64, 2, 3),
    (32, 32, 3, 32, 2, 4),
    (32, 32, 3, 64, 4, 1),
    (32, 32, 3, 128, 4, 1),
    (32, 32, 3, 128, 4, 3),
    (32, 16, 9, 64, 2, 1),
    (32, 16, 9, 64, 2, 3),
    (32, 32, 1, 128, 2, 3),
    (64, 64, 1, 64, 4, 1),
]
QUICK = len(VARIANTS) // 2
SMALL = 128 * 128  # filters x channels; with more, smaller tiles only read more
MOST_SUMS = 128  # a thread
MOST_SHARED = 227 * 1024  # bytes a program
COMPILING = 0.5  # of the time, at most
WORST_ERROR = 0.01  # of a tiling, against cuDNN; bf16 has 8 bits

Job = tuple[Convolution, Tiling]


def shapes_of(name: str, *, batch: int, side: int) -> tuple[Counter[Convolution], int]:
    """How often each convolution that the kernel takes occurs in a network, and how many others there are."""
    with torch.device("meta"):
        model = models.build(name, shape=(3, side, side), classes=10, options={}).eval()
    found: Counter[Convolution] = Counter()
    others: list[nn.Module] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not kernel_takes(module):
            others.append(module)
            return
        assert isinstance(module, nn.Conv2d)
        sizes = {"side": module.kernel_size[0], "stride": module.stride[0], "padding": int(module.padding[0])}
        found[Convolution.of(inputs[0], module.out_channels, **sizes)] += 1

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(note)
    model(torch.empty(batch, 3, side, side, device="meta"))
    return found, len(others)


def candidates(convolution: Convolution, *, quick: bool) -> list[Tiling]:
    """Tilings worth a try, the one that training uses first."""
    rule = tiling_of(convolution)
    variants = [
        Tiling(*sizes, shares=1, block=block, warps=warps, stages=stages)
        for *sizes, block, warps, stages in (VARIANTS[:QUICK] if quick else VARIANTS)
    ]
    found = [
        shared_out(tiling, convolution, programs)
        for tiling in (rule, *variants)
        if worth_a_try(tiling, convolution)
        for programs in PROGRAMS
    ]
    return list(dict.fromkeys(used(tiling, convolution) for tiling in (rule, *found)))


def used(tiling: Tiling, convolution: Convolution) -> Tiling:
    """The same, with the shares it will have."""
    return replace(tiling, shares=tiling.used_shares(convolution))


def worth_a_try(tiling: Tiling, convolution: Convolution) -> bool:
    """It fits the weights, the registers and the shared memory, and is not much smaller than it could be."""
    sums = tiling.filters * tiling.channels * tiling.taps / (32 * tiling.warps)
    shared = tiling.stages * tiling.block * (tiling.filters + tiling.taps * tiling.channels) * 2
    largest = tile_of(convolution.filters) * tile_of(convolution.channels)
    least = largest // 4 if convolution.filters * convolution.channels <= SMALL else largest
    fits = tiling.fits(convolution) and sums <= MOST_SUMS and shared <= MOST_SHARED
    return fits and tiling.filters * tiling.channels >= least


def compile_for(job: Job) -> str:
    """Fill Triton's cache, in a process of its own; what went wrong, if anything did."""
    from hypersparse.training.conv_kernel import _sum_shares, constants

    convolution, tiling = job
    sums = torch.bfloat16 if tiling.shares == 1 else torch.float32
    try:
        _sum_shares.warmup(
            torch.bfloat16,
            torch.bfloat16,
            sums,
            convolution.pixels,
            tiling.blocks(convolution),
            **constants(convolution, tiling),
            grid=(1,),
        )
    except Exception as error:  # of the compiler, for one tiling among many
        return first_line(error)
    return ""


def first_line(error: Exception) -> str:
    """What went wrong, in short."""
    return (str(error) or type(error).__name__).splitlines()[0]


def compile_all(jobs: Sequence[Job], seconds: float) -> set[Job]:
    """All that can be compiled in that time, several at once. CUDA must not be in use yet: processes are forked."""
    # What differs in the number of shares only is compiled once. Every shape's first tilings come first.
    order = sorted(jobs, key=lambda job: [each for shape, each in jobs if shape == job[0]].index(job[1]))
    kinds = {kind_of(job): job for job in reversed(order)}
    pool = ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork"))
    futures = {kind: pool.submit(compile_for, kinds[kind]) for kind in dict.fromkeys(map(kind_of, order))}
    wait(futures.values(), timeout=seconds)
    pool.shutdown(wait=True, cancel_futures=True)
    late = {kind for kind, future in futures.items() if future.cancelled()}
    failed = {kind: future.result() for kind, future in futures.items() if kind not in late and future.result()}
    if len(failed) + len(late) == len(kinds):
        print(f"Nothing could be compiled beforehand, so it takes longer: {next(iter(failed.values()), 'no time')}")
        return set(jobs)
    if late:
        print(f"{len(late)} of {len(kinds)} kinds of tilings were not compiled: no time")
    for (convolution, tiling), error in failed.items():
        print(f"Not compiled: {label(convolution)}, {described(tiling)}: {error}")
    return {job for job in jobs if kind_of(job) not in late | set(failed)}


def kind_of(job: Job) -> Job:
    """What the compiler sees of it: whether there is more than one share."""
    convolution, tiling = job
    return convolution, replace(tiling, shares=min(tiling.shares, 2))


def microseconds(call: Callable[[int], Tensor]) -> float:
    """Of one call, which gets its number, in a graph of many."""
    for number in range(3):  # libraries choose their algorithms in the first calls
        call(number)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(number) for number in range(CALLS)]
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    del kept
    return start.elapsed_time(end) * 1000 / (CALLS * REPLAYS)


@dataclass(frozen=True)
class Row:
    """What was measured of a shape: microseconds of a call, in order of the tilings."""

    convolution: Convolution
    library: float
    tilings: dict[Tiling, float]

    @property
    def rule(self) -> float:
        """Of the tiling that training uses; not a number where that one failed."""
        return self.tilings.get(used(tiling_of(self.convolution), self.convolution), math.nan)

    @property
    def best(self) -> Tiling:
        """The fastest tiling."""
        return min(self.tilings, key=self.tilings.__getitem__)


def measure(convolution: Convolution, tilings: Sequence[Tiling], until: float) -> Row:
    """Time cuDNN and the tilings, as many as there is time for, and check each one's result."""
    from hypersparse.training.conv_kernel import weight_gradient

    sizes = (convolution.filters, convolution.channels, convolution.side, convolution.side)
    last = {"memory_format": torch.channels_last}
    images = [
        torch.randn(convolution.batch, convolution.channels, convolution.height, convolution.width, device="cuda")
        .bfloat16()
        .contiguous(**last)
        for _ in range(CALLS)
    ]
    outs = (convolution.out_height, convolution.out_width)
    gradients = torch.randn(convolution.batch, convolution.filters, *outs, device="cuda").bfloat16().contiguous(**last)
    weight = torch.randn(sizes, device="cuda").bfloat16().contiguous(**last)
    stride, padding = [convolution.stride] * 2, [convolution.padding] * 2

    def library(number: int) -> Tensor:
        found: Tensor = torch.ops.aten.convolution_backward(
            gradients, images[number], weight, None, stride, padding, [1, 1], False, [0, 0], 1, [False, True, False]
        )[1]
        return found

    expected, library_time, times = library(0).float(), microseconds(library), {}
    for tiling in tilings:
        if times and time.perf_counter() > until:
            break
        try:
            found = weight_gradient(images[0], gradients, convolution, tiling).float()
            error = float((found - expected).norm() / expected.norm())
            if not error < WORST_ERROR:
                print(f"WRONG by {error:.3g}: {label(convolution)}, {described(tiling)}")
                continue
            times[tiling] = microseconds(lambda number: weight_gradient(images[number], gradients, convolution, tiling))  # noqa: B023
        except Exception as error:  # a tiling that does not fit on this device
            print(f"Not run: {label(convolution)}, {described(tiling)}: {first_line(error)}")
    torch.cuda.empty_cache()  # the memory of all graphs
    return Row(convolution, library_time, times)


def label(convolution: Convolution) -> str:
    """A shape in a few words."""
    stride = f", stride {convolution.stride}" if convolution.stride > 1 else ""
    side, size = convolution.side, f"{convolution.height}x{convolution.width}"
    return f"{convolution.channels}->{convolution.filters} {side}x{side}{stride} at {size}"


def described(tiling: Tiling) -> str:
    """A tiling in a few words."""
    tile = f"{tiling.filters}x{tiling.channels}x{tiling.taps}"
    return f"{tile}, {tiling.shares} x {tiling.block}, {tiling.warps} warps, {tiling.stages} stages"


def table(rows: Sequence[Row], counts: dict[str, Counter[Convolution]]) -> Iterator[str]:
    """Markdown: a row a shape, then the sums over each network whose shapes were all measured."""
    names = list(counts)
    yield (
        "| convolution | "
        + " | ".join(names)
        + " | cuDNN us | kernel us | best us | best tiling: filters x channels x taps |"
    )
    yield "| --- " * (len(names) + 5) + "|"
    for row in rows:
        times = " | ".join(str(counts[name][row.convolution]) for name in names)
        best = f"{row.tilings[row.best]:.1f} | {described(row.best)}"
        yield f"| {label(row.convolution)} | {times} | {row.library:.1f} | {row.rule:.1f} | {best} |"
    yield ""
    yield "| sum over a step | cuDNN us | kernel us | best us | the faster of cuDNN and best us |"
    yield "| --- | --- | --- | --- | --- |"
    measured = {row.convolution: row for row in rows}
    for name in names:
        if set(counts[name]) <= set(measured):
            pairs = [(measured[shape], count) for shape, count in counts[name].items()]
            sums = [
                sum(count * value for value, count in column)
                for column in (
                    [(row.library, count) for row, count in pairs],
                    [(row.rule, count) for row, count in pairs],
                    [(row.tilings[row.best], count) for row, count in pairs],
                    [(min(row.library, row.tilings[row.best]), count) for row, count in pairs],
                )
            ]
            yield f"| {name} | " + " | ".join(f"{value:.0f}" for value in sums) + " |"


def entries(rows: Sequence[Row]) -> Iterator[str]:
    """Lines for the table of measured tilings in `hypersparse/training/conv_tiling.py`."""
    for row in rows:
        best = written(row.best) if row.tilings[row.best] < row.library else None
        yield f"    {key_of(row.convolution)}: {best},  # {row.library:.1f} to {row.tilings[row.best]:.1f} us"


def written(tiling: Tiling) -> str:
    """As a line of Python."""
    tile = f"{tiling.filters}, {tiling.channels}, {tiling.taps}, block={tiling.block}"
    return f"Tiling({tile}, shares={tiling.shares}, warps={tiling.warps}, stages={tiling.stages})"


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="Time gradients of convolution weights: cuDNN's and the kernel's.")
    parser.add_argument("--models", default="resnet32,vgg19", help="names of networks, in order of their worth")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--side", type=int, default=32, help="of the images, in pixels")
    parser.add_argument("--quick", action="store_true", help="fewer tilings")
    parser.add_argument("--seconds", type=float, default=50, help="no further tiling is tried after that")
    parser.add_argument("--all", action="store_true", help="print the time of every tiling too")
    parser.add_argument("--python", action="store_true", help="print the best tilings as lines of Python too")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options, began = parsed(words), time.perf_counter()
    counts = {name: shapes_of(name, batch=options.batch, side=options.side)[0] for name in options.models.split(",")}
    shapes = list(dict.fromkeys(shape for counter in counts.values() for shape in counter))
    if torch.cuda.device_count() == 0:  # asked without starting CUDA
        sys.exit("This needs a CUDA device, and none was found: check the driver with nvidia-smi.")
    jobs = [(shape, tiling) for shape in shapes for tiling in candidates(shape, quick=options.quick)]
    compiled = compile_all(jobs, options.seconds * COMPILING)
    print(
        f"{len(compiled)} tilings of {len(shapes)} shapes compiled in {time.perf_counter() - began:.1f} s\n", flush=True
    )
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0  # try all of cuDNN's algorithms
    rows = []
    for index, shape in enumerate(shapes):
        left = began + options.seconds - time.perf_counter()
        until = time.perf_counter() + left / (len(shapes) - index)
        rule, *others = candidates(shape, quick=options.quick)
        tilings = [rule, *(tiling for tiling in others if (shape, tiling) in compiled)]
        rows.append(measure(shape, tilings, until))
        if options.all:
            for tiling, value in sorted(rows[-1].tilings.items(), key=lambda pair: pair[1]):
                print(f"{label(shape)}: {value:.2f} us, {described(tiling)}")
    rows = [row for row in rows if row.tilings]
    print("\n".join(table(rows, counts)))
    if options.python:
        print("", *entries(rows), sep="\n")
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    try:
        main()
    except HypersparseError as error:
        sys.exit(str(error))

"""Times gradients of convolution weights on a CUDA device: cuDNN's, and those of our kernel in many tilings.

    python -m benchmarks.conv_weight_gradient [--quick] [--models resnet32,vgg19] [--seconds 50]

Every figure is the mean of calls that follow each other in one CUDA graph, in bf16 and channels-last. As in a training
step, each call has other images, which are not in the cache. The gradients of the output are the same.
"""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.conv_tilings import candidates, compile_all, described, first_line, label, shapes_of, used
from hypersparse.errors import HypersparseError
from hypersparse.training.kernels.conv_tiling import Convolution, Tiling, key_of, tiling_of

CALLS, REPLAYS = 20, 5
COMPILING = 0.5  # of the time, at most
WORST_ERROR = 0.01  # of a tiling, against cuDNN; bf16 has 8 bits


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
class GradientTimes:
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


def measure(convolution: Convolution, tilings: Sequence[Tiling], until: float) -> GradientTimes:
    """Time cuDNN and the tilings, as many as there is time for, and check each one's result."""
    from hypersparse.training.kernels.conv_kernel import weight_gradient

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
    return GradientTimes(convolution, library_time, times)


def table(rows: Sequence[GradientTimes], counts: dict[str, Counter[Convolution]]) -> Iterator[str]:
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


def entries(rows: Sequence[GradientTimes]) -> Iterator[str]:
    """Lines for the table of measured tilings in `hypersparse/training/kernels/conv_tiling.py`."""
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

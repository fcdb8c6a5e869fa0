"""`python -m hypersparse_runtime [--int8] FILE.hsp`: run a network on an image, print what it computes and how fast."""

import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np

from hypersparse_runtime.container import FileError
from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.sparse_model import SparseModel

REPETITIONS = 100
HELP = """usage: python -m hypersparse_runtime [--int8] FILE.hsp

Runs the network on one thread; prints its multiplications and the median time of an image.
--int8: layers in int8, on CPUs with AVX-512 VNNI, where that is faster."""


def main(arguments: Sequence[str]) -> int:
    """Print the facts of the file, and the median time of an image; returns the exit code."""
    files, int8 = [each for each in arguments if each != "--int8"], "--int8" in arguments
    if files == ["--help"]:
        print(HELP)
        return 0
    if len(files) != 1 or files[0].startswith("-"):
        print(HELP, file=sys.stderr)
        return 2
    try:
        model = SparseModel.load(files[0], threads=1, int8=int8)
    except (OSError, FileError, GraphError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    shapes = (" x ".join(map(str, shape)) for shape in (model.input_shape, model.output_shape))
    print(f"{files[0]}: {' to '.join(shapes)} numbers by the engine {model.engine}")
    print(f"{model.products:,} of {model.dense_products:,} multiplications for an image")
    if int8:
        print(f"{model.int8_layers} of {sum(node.weighted for node in model.graph.nodes)} layers in int8")
    print(f"{milliseconds(model):.3f} ms for an image on one thread, the median of {REPETITIONS}")
    return 0


def milliseconds(model: SparseModel) -> float:
    """The median time of an image of zeros, which takes as long as any other."""
    image, times = np.zeros((1, *model.input_shape), np.float32), []
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        model(image)
        times.append(time.perf_counter() - begin)
    return 1000 * float(np.median(times))


if __name__ == "__main__":
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    sys.exit(main(sys.argv[1:]))

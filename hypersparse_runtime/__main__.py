"""`python -m hypersparse_runtime FILE.hsp`: run a network on one image, and say what it computes and how fast."""

import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np

from hypersparse_runtime.container import FileError
from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.sparse_model import SparseModel

REPETITIONS = 100


def main(arguments: Sequence[str]) -> int:
    """Print the facts of the file, and the median time of an image; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m hypersparse_runtime FILE.hsp", file=sys.stderr)
        return 2
    try:
        model = SparseModel.load(arguments[0], threads=1)
    except (OSError, FileError, GraphError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    shapes = (" x ".join(map(str, shape)) for shape in (model.input_shape, model.output_shape))
    print(f"{arguments[0]}: {' to '.join(shapes)} numbers by the engine {model.engine}")
    print(f"{model.products:,} of {model.dense_products:,} multiplications for an image")
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

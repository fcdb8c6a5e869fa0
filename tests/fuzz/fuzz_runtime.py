"""Fuzzes reading and running of `.hsp` files without torch, with networks that fit together and are extreme.

    nice python -m tests.fuzz.fuzz_runtime --cases 15000 [--seed 0] [--kernel FILE] [--keep FOLDER]

Each network is written, read, loaded by every engine of this package, and run on few and many images. In a kernel that
checks every access its programs are run in all layouts and with any variants. A load of over 2 s a megabyte or 1 GB,
outputs that differ from numpy's, an error that is not of one sentence and a signal are findings. With the sanitizers:

    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 nice python -m tests.fuzz.fuzz_runtime --sanitized
"""

import argparse
import tempfile
import time
from collections import Counter
from math import inf
from pathlib import Path
from random import Random

import numpy as np

import hypersparse_runtime.file
from hypersparse_runtime import Graph, SparseModel
from hypersparse_runtime.container import FileError
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.file import pack, unpack
from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.int8 import count_int8, with_int8
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.kernel_program import write_program
from hypersparse_runtime.lazy_bias import with_lazy_bias
from hypersparse_runtime.limits import _sizes, estimate
from hypersparse_runtime.lowering import dense_products, layers_of
from hypersparse_runtime.plane_layout import place, rows_fit
from hypersparse_runtime.sparse_layers import Network
from hypersparse_runtime.sparse_model import id_count
from hypersparse_runtime.tuning import TILES, VECTOR
from hypersparse_runtime.winograd import COST, with_winograd
from tests.fuzz.checked_kernel import CheckedKernel, build_checked, set_variants_
from tests.fuzz.children import FindingError, Outcome, check_seconds, run_cases
from tests.fuzz.runtime_graphs import runtime_graph

MOST_RUN = 1e6  # products and values of a network that is run too: the fuzzer's own images are 10 arrays of 17 of them
TOLERANCE = 1e-4


def make_file(seed: int, path: Path) -> Outcome:
    """The file of a case, whether it is within the limits or not."""
    checked = hypersparse_runtime.file.check_sizes
    hypersparse_runtime.file.check_sizes = lambda graph, **rest: None  # type: ignore[assignment]
    try:
        path.write_bytes(pack(runtime_graph(seed)))
    except (FileError, MemoryError) as error:
        return Outcome("unwritten", str(error))
    finally:
        hypersparse_runtime.file.check_sizes = checked
    return Outcome("written")


class Attempt:
    """Reads, loads and runs the file of a case."""

    def __init__(self, kernel: CheckedKernel) -> None:
        self.kernel = kernel

    def __call__(self, seed: int, path: Path) -> Outcome:
        began, size = time.process_time(), path.stat().st_size
        try:
            graph = unpack(path.read_bytes())
            sparse = SparseModel(graph, engine="hypersparse", threads=1)
        except (FileError, GraphError) as error:
            check_seconds(time.process_time() - began, size)
            if "\n" in str(error):
                raise FindingError(f"several lines: {error}") from None
            return Outcome("refused", str(error))
        check_seconds(time.process_time() - began, size)
        elements = sum(size for _, _, size in _sizes(graph))
        if dense_products(graph) + estimate(graph).products + elements > MOST_RUN:
            return Outcome("loaded")
        self._compare(seed, graph, sparse)
        return Outcome("ran")

    def _compare(self, seed: int, graph: Graph, sparse: SparseModel) -> None:
        rng = np.random.default_rng(seed)
        images = rng.normal(size=(17, *graph.input_shape)).astype(np.float32)
        words = id_count(graph)
        if words is not None:
            images = rng.integers(0, words, size=images.shape).astype(np.float32)
        wanted = SparseModel(graph, engine="numpy", threads=1)(images)
        for count in (1, 17):
            _check_same(sparse(images[:count]), wanted[:count], "the engine")
        random = Random(seed)
        network = with_lazy_bias(without_dead_channels(layers_of(graph)))
        self._run_int8(network, images[:2], random)
        network = with_winograd(network, cost=random.choice((0, COST)))
        alone = network.one_by_one
        for level in self.kernel.levels:
            for rows, lanes in ((True, 1), (False, 1), (False, max(8, VECTOR[level]))):
                if alone and lanes > 1:
                    continue
                placed = place(network, rows=rows, folded=rows and VECTOR[level] == 16)
                if rows and not rows_fit(placed, VECTOR[level], TILES[level][1]):
                    continue
                try:
                    program = write_program(placed, lanes, VECTOR[level])
                except GraphError:  # too much memory in this layout
                    continue
                set_variants_(program, self.kernel, level, random)
                found = self.kernel.outputs(program, images[: lanes + 1])
                _check_same(found, wanted[: lanes + 1], f"{level}, rows {rows}, lanes {lanes}")

    def _run_int8(self, network: Network, images: np.ndarray, random: Random) -> None:
        """Run all layers in int8 that can be, within their memory. Outputs of such networks may be anything."""
        placed = place(with_int8(network, cost=0, worth=inf), rows=True, folded=random.random() < 0.5)
        if not self.kernel.has_int8 or not count_int8(placed) or not rows_fit(placed, 16, TILES["avx512"][1]):
            return
        try:
            program = write_program(placed, 1, 16)
        except GraphError:  # too much memory in this layout
            return
        set_variants_(program, self.kernel, "avx512", random)
        self.kernel.outputs(program, images)


def _check_same(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
    if not np.allclose(found, wanted, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
        raise FindingError(f"{what} gives other outputs: {np.abs(found - wanted).max()} of {scale}")


def fuzz(seeds: range, kernel: CheckedKernel, folder: Path) -> tuple[Counter[str], list[str]]:
    """Counts of outcomes, and what was found."""
    load_kernel()
    return run_cases(seeds, make_file, Attempt(kernel), folder / "case.hsp")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kernel", type=Path, help="a checked kernel that is built already")
    parser.add_argument("--sanitized", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        built = options.kernel or build_checked(Path(temporary) / "kernel.so", sanitized=options.sanitized)
        began, counts = time.perf_counter(), Counter[str]()
        for start in range(options.seed, options.seed + options.cases, 100):
            seeds = range(start, min(start + 100, options.seed + options.cases))
            more, findings = fuzz(seeds, CheckedKernel(built), folder)
            counts += more
            print(f"{start}: {dict(counts)}", flush=True)
            for finding in findings:
                print(finding, flush=True)
        print(f"{dict(counts)} in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

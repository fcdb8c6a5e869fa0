"""Fuzzes the runtime for browsers in Node, with networks that fit together, extreme ones, and damaged files.

    nice python -m tests.fuzz.fuzz_browser --cases 4000 [--seed 0] [--keep FOLDER]

Each file is loaded; small networks run, beside numpy. A load of over 6 s of a core a megabyte, more than 1.5 GB, other
outputs than numpy's, an error that is not of the runtime or not one line, a hang and the end of Node are findings.
"""

import argparse
import json
import select
import subprocess
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hypersparse.export.web.package import write_package
from hypersparse_runtime import Graph, SparseModel
from hypersparse_runtime.container import FileError, container, sections_of
from hypersparse_runtime.file import unpack
from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.limits import SMALL, _sizes, estimate
from hypersparse_runtime.lowering import dense_products
from hypersparse_runtime.sparse_model import id_count
from tests.export.web.node import NODE, RUNNER
from tests.fuzz.children import FindingError
from tests.fuzz.damage import changed
from tests.fuzz.extreme_graphs import random_graph
from tests.fuzz.fuzz_load_sparse import unchecked
from tests.fuzz.fuzz_runtime import MOST_RUN, TOLERANCE
from tests.fuzz.runtime_graphs import runtime_graph

MOST_CPU_SECONDS, MOST_WAIT_SECONDS, MOST_KILOBYTES = 6.0, 600, 1_500_000
CASES_OF_A_PROCESS = 25  # whose memory is not told apart


def fitting(seed: int) -> bytes:
    """A network that fits together."""
    return unchecked(runtime_graph(seed))


def extreme(seed: int) -> bytes:
    """A network of any sizes."""
    return unchecked(random_graph(seed))


def flipped(seed: int) -> bytes:
    """A file with other bytes, perhaps cut."""
    random, content = Random(seed), bytearray(fitting(seed))
    for _ in range(random.randint(1, 8)):
        content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content[: random.randrange(len(content))] if random.random() < 0.2 else content)


def crafted(seed: int) -> bytes:
    """A file whose graph says something else, with a digest that fits."""
    random, (sections, _) = Random(seed), sections_of(fitting(seed))
    text = json.loads(zlib.decompress(sections["graph"]))
    for _ in range(random.randint(1, 3)):
        text = changed(text, random)
    said = json.dumps(text, allow_nan=True).encode("utf-8", errors="surrogatepass")
    return container({**sections, "graph": zlib.compress(said)}, "{}")


KINDS: tuple[Callable[[int], bytes], ...] = (fitting, extreme, flipped, crafted)


class Node:
    """A process of Node that loads and runs networks."""

    def __init__(self, package: Path) -> None:
        self._command = [NODE or "node", str(RUNNER), str(package / "dist" / "index.js")]
        self._process: subprocess.Popen[str] | None = None
        self._cases = 0

    def answer(self, file: Path, images: Any) -> dict[str, Any]:
        """What it says of a network."""
        if self._process is None or self._cases == CASES_OF_A_PROCESS:
            self.close()
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        process, self._cases = self._process, self._cases + 1
        assert process.stdin
        assert process.stdout
        given = None if images is None else images.ravel().tolist()
        process.stdin.write(json.dumps({"file": str(file), "images": given}) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], MOST_WAIT_SECONDS)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise FindingError("Node ended" if ready else f"no answer in {MOST_WAIT_SECONDS} s")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process, self._cases = None, 0


def try_case(seed: int, file: Path, node: Node) -> str:
    """What became of a case; raises FindingError."""
    content = KINDS[seed % len(KINDS)](seed)
    file.write_bytes(content)
    images, wanted = _expected(seed, content) if seed % len(KINDS) == 0 else (None, None)
    answer = node.answer(file, images)
    if answer["cpu"] > MOST_CPU_SECONDS * max(1, len(content) / SMALL):
        raise FindingError(f"{len(content)} bytes took {answer['cpu']:.1f} s: {answer.get('sentence', 'loaded')}")
    if answer["kilobytes"] > MOST_KILOBYTES:
        node.close()
        raise FindingError(f"{len(content)} bytes took {answer['kilobytes'] / 1000:.0f} MB")
    if "error" in answer:
        if answer["error"] not in ("FileError", "NetworkError") or "\n" in answer["sentence"]:
            raise FindingError(f"{answer['error']}: {answer['sentence']}")
        return "refused"
    if wanted is None:
        return "loaded"
    outputs = np.array([float(number) for number in answer["outputs"]])
    scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
    if not np.allclose(outputs, wanted, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
        raise FindingError(f"other outputs: {np.abs(outputs - wanted).max()} of {scale}")
    return "ran"


def _expected(seed: int, content: bytes) -> tuple[Any, Any]:
    """Images and outputs of a network that is small enough."""
    try:
        graph: Graph = unpack(content)
        elements = sum(size for _, _, size in _sizes(graph))
        if dense_products(graph) + estimate(graph).products + elements > MOST_RUN:
            return None, None
        random, words = np.random.default_rng(seed), id_count(graph)
        images = random.normal(size=(2, *graph.input_shape)).astype(np.float32)
        images = images if words is None else random.integers(0, words, images.shape).astype(np.float32)
        return images, SparseModel(graph, engine="numpy", threads=1)(images).ravel()
    except (FileError, GraphError):
        return None, None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    began, counts = time.perf_counter(), Counter[str]()
    with tempfile.TemporaryDirectory() as temporary:
        folder, node = options.keep or Path(temporary), Node(write_package(temporary))
        folder.mkdir(parents=True, exist_ok=True)
        for seed in range(options.seed, options.seed + options.cases):
            kind, file = KINDS[seed % len(KINDS)].__name__, folder / "case.hsp"
            try:
                counts[f"{kind} {try_case(seed, file, node)}"] += 1
            except (FileError, GraphError, ValueError, OverflowError, RecursionError, MemoryError):
                counts[f"{kind} not written"] += 1
            except FindingError as error:
                counts["finding"] += 1
                file.replace(folder / f"case-{seed}.hsp")
                print(f"{seed} ({kind}): {error}", flush=True)
            if seed % 100 == 99:
                print(f"{seed + 1}: {dict(counts)}", flush=True)
        node.close()
    print(f"{dict(counts)} in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

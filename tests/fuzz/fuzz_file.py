"""Fuzzes the reader of .hsp files with atheris: anything but a network or one sentence is a crash.

    python tests/fuzz/fuzz_file.py --seconds 300 [--sealed] [--module]

`--sealed` changes what is inside (graph, positions, values) and seals it again, so that the checks behind the digest
are reached; `--module` also makes a PyTorch module of what was read. atheris counts the executions.
"""

import argparse
import json
import sys
import tempfile
import zlib
from pathlib import Path

import atheris
import numpy as np

with atheris.instrument_imports(include=["hypersparse_runtime"]):
    from hypersparse_runtime.container import FileError, container, sections_of
    from hypersparse_runtime.file import pack, unpack
    from hypersparse_runtime.graph import INPUT, Graph, Node

CONV = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
CUT = b"\0|\0"  # between the parts of a sealed input


def example() -> Graph:
    """A network with most of what a file can hold."""
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((8, 3, 3, 3)).astype(np.float32)
    weight[generator.random(weight.shape) > 0.1] = 0
    tensors = {
        "conv.weight": weight,
        "conv.bias": np.ones(8, np.float32),
        "norm": np.ones(8, np.float64),
        "linear.weight": generator.standard_normal((4, 16)).astype(np.float32),
        "count": np.array(3, np.int64),
    }
    norm = dict.fromkeys(("weight", "bias", "mean", "variance"), "norm")
    silu = {"arguments": [{"input": 0}], "keywords": {}, "shape": (16,)}
    nodes = (
        Node("conv", (INPUT,), "a", {"weight": "conv.weight", "bias": "conv.bias"}, CONV),
        Node("batch_norm", ("a",), "n", norm, {"epsilon": 1e-5}),
        Node("relu", ("n",), "r"),
        Node("clip", ("r",), "c", {}, {"low": 0.0, "high": 6.0}),
        Node("add", ("c", "a"), "s"),
        Node("concat", ("s", "r"), "j"),
        Node("max_pool", ("j",), "p", {}, {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}),
        Node("mean", ("p",), "m"),
        Node("aten.silu.default", ("m",), "o", {}, silu),
        Node("linear", ("o",), "y", {"weight": "linear.weight"}),
        Node("softmax", ("y",), "z"),
    )
    return Graph((3, 6, 6), nodes, tensors, {"classes": ["a", "b", "c", "d"]})


def sealed(data: bytes) -> bytes:
    """A whole file around a graph's text, positions and values."""
    text, _, rest = data.partition(CUT)
    positions, _, values = rest.partition(CUT)
    parts = {"graph": zlib.compress(text, 1), "positions": positions, "values": zlib.compress(values, 1)}
    return container(parts, "{}")


def seeds(use_seal: bool) -> list[bytes]:
    """What the fuzzer starts from."""
    content = pack(example())
    if not use_seal:
        return [content, pack(example(), half=True)]
    sections, _ = sections_of(content)
    inflated = {name: zlib.decompress(sections[name]) for name in ("graph", "values")}
    text = json.dumps(json.loads(inflated["graph"])).encode()
    return [CUT.join((text, sections["positions"], inflated["values"]))]


def check_sentence(error: Exception) -> None:
    """A message is one line."""
    if "\n" in str(error):
        raise SystemError(f"several lines: {error!r}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--sealed", action="store_true")
    parser.add_argument("--module", action="store_true")
    options = parser.parse_args()
    if options.module:
        from hypersparse.errors import HypersparseError
        from hypersparse.export.graph_module import to_module

    def once(data: bytes) -> None:
        try:
            graph = unpack(sealed(data) if options.sealed else data)
        except FileError as error:
            check_sentence(error)
            return
        if options.module:
            try:
                to_module(graph)
            except HypersparseError as error:
                check_sentence(error)

    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(seeds(options.sealed)):
            (Path(folder) / f"seed-{number}").write_bytes(content)
        limits = [f"-max_total_time={options.seconds}", "-rss_limit_mb=4096", "-malloc_limit_mb=1024", "-max_len=8192"]
        atheris.Setup([sys.argv[0], folder, *limits, "-print_final_stats=1"], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

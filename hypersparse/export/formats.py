"""The formats of `hypersparse export`, by file suffix.

A new format is one file in this folder and one row in `FORMATS`.
"""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hypersparse.errors import OptionError
from hypersparse.export import integer_reference
from hypersparse.export.c_source import save_c
from hypersparse.export.graph_module import to_module
from hypersparse.export.onnx import in_onnx_runtime, save_graph_onnx
from hypersparse.export.quantized_graph import QuantizedGraph
from hypersparse.export.sparse_file import exact, load_sparse, save_graph
from hypersparse.export.state_dict import save_state_dict
from hypersparse.export.verify import Predict
from hypersparse.export.web.page import read_page, save_page
from hypersparse_runtime.graph import Graph

Write = Callable[[Any, Path, int | None], int]  # of a graph; where `int8` is set, also of a quantized one
Read = Callable[[Path, int | None], Predict]
HSP, HTML = ".hsp", ".html"
DEPLOYABLE = (HSP, HTML)  # that hold a network as a .hsp file does


def _profiled(graph: Graph) -> Graph:
    """A graph with its profile; one without is exact."""
    return graph if "profile" in graph.about else exact(graph)


@dataclass(frozen=True)
class Format:
    """A file format. `write` returns the size in bytes, `read` a function that runs the file; both get the fixed batch
    size, if any.
    """

    write: Write
    read: Read | None = None  # None: nothing here runs the file, so the graph is tested in PyTorch
    reader: str = ""  # what `read` uses, in words
    package: str | None = None  # that `read` needs
    fixed_batch: bool = False  # whether a batch size may be fixed
    int8: bool = False  # whether it can hold integer activations

    def predictor(self, graph: Graph | QuantizedGraph, path: Path, batch: int | None) -> tuple[Predict, str]:
        """A function that runs the written file, and its name."""
        if isinstance(graph, QuantizedGraph):
            return partial(integer_reference.predict, graph), "the integers of the file, computed in PyTorch"
        if self.read is None or (self.package and importlib.util.find_spec(self.package) is None):
            return to_module(graph), "the network that was written, in PyTorch"
        return self.read(path, batch), self.reader


FORMATS: Mapping[str, Format] = {
    HSP: Format(
        write=lambda graph, path, _: save_graph(_profiled(graph), path),
        read=lambda path, _: load_sparse(path),
        reader="the file loaded into PyTorch",
    ),
    HTML: Format(
        write=lambda graph, path, _: save_page(_profiled(graph), path),
        read=lambda path, _: to_module(read_page(path)),
        reader="the network in the page, loaded into PyTorch",
    ),
    ".onnx": Format(
        write=lambda graph, path, batch: save_graph_onnx(graph, path, batch=batch),
        read=in_onnx_runtime,
        reader="the file in ONNX Runtime",
        package="onnxruntime",
        fixed_batch=True,
    ),
    ".c": Format(write=lambda graph, path, _: save_c(graph, path), int8=True),
    ".safetensors": Format(write=lambda graph, path, _: save_state_dict(to_module(graph), path)),
}


def format_of(path: Path) -> Format:
    """The format of a file suffix."""
    if path.suffix not in FORMATS:
        raise OptionError(f"The ending of --out sets the format: {', '.join(FORMATS)}; got `{path.name}`.")
    return FORMATS[path.suffix]

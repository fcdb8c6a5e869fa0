"""`save_sparse` and `load_sparse`: a trained network in a file of kilobytes."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hypersparse import __version__
from hypersparse.errors import ModelError, OptionError, RunError
from hypersparse.export.graph_module import Network, to_module
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse.sparsity.mask import Mask
from hypersparse.storage.files import write_atomically
from hypersparse_runtime.container import FileError, to_json
from hypersparse_runtime.file import pack, read
from hypersparse_runtime.graph import Graph
from hypersparse_runtime.row_quantization import dequantize_rows, is_quantizable, quantize_rows

EXACT, DEPLOY = "exact", "deploy"
FP16, INT8 = "fp16", "int8"
HALF_BITS = 10  # of fp16's mantissa
FINER_BITS = (13, 16)  # tried in turn where fp16 changes a prediction; then fp32
MANTISSA = 23  # bits of fp32's

Agrees = Callable[[Graph], bool]
"""Whether a network predicts what the original does."""


def save_sparse(
    model: nn.Module,
    path: str | Path,
    *,
    input_shape: Sequence[int],
    deploy: bool = False,
    int8: bool = False,
    about: Mapping[str, Any] = MappingProxyType({}),
    mask: Mask | None = None,
    input_dtype: torch.dtype | None = None,
) -> int:
    """Write a model as one `.hsp` file for inputs of this shape (without the batch); returns its size in bytes.

    Every weight is stored bit for bit. With `deploy` the file holds a smaller network with the same outputs: batch
    norms folded, dead structure removed, values in half precision. With `int8` besides, weights are int8 with a scale
    for each output channel, which may change predictions. `about` is plain JSON, such as the classes. With
    `mask=sparsifier.mask`, a dropped weight that is not 0.0 is an error. `input_dtype` is `torch.int64` for token
    numbers.
    """
    _check_about(about)
    if int8 and not deploy:
        raise OptionError("`int8=True` needs `deploy=True`; without it a file holds the exact weights.")
    if mask is not None:
        mask.check_zeros(model)
    graph = trace(model, input_shape, about, input_dtype=input_dtype)
    if deploy:
        return save_graph(deployed_int8(graph) if int8 else deployed(graph), path)
    return save_graph(exact(graph), path)


def load_sparse(path: str | Path) -> Network:
    """The network in a `.hsp` file as a PyTorch module, in evaluation mode. Nothing in the file is executed.

    Layers keep their names: `model.load_state_dict(load_sparse(path).state_dict())` fills the saved model. It does not
    fit for deployed files, whose layers are smaller.
    """
    return to_module(load_graph(path))


def save_graph(graph: Graph, path: str | Path) -> int:
    """Write a graph made by `exact` or `deployed`; the file appears as a whole or not at all."""
    content = file_bytes(graph)
    write_atomically(Path(path), lambda beside: _write(beside, content))
    return len(content)


def file_bytes(graph: Graph) -> bytes:
    """The bytes of a file of a graph made by `exact`, `deployed` or `deployed_int8`."""
    values = graph.about.get("values")
    try:
        return pack(graph, half=values in (FP16, INT8), int8=values == INT8)
    except FileError as error:
        raise ModelError(f"The network cannot be written: {error}") from None


def load_graph(path: str | Path) -> Graph:
    """Read a graph; a damaged or forged file raises an error of one sentence."""
    try:
        return read(path)
    except FileError as error:
        raise RunError(str(error)) from None


def exact(graph: Graph) -> Graph:
    """The graph for a file that stores everything bit for bit."""
    return replace(graph, about=_about(graph, EXACT, "fp32"))


def deployed(graph: Graph, agrees: Agrees | None = None) -> Graph:
    """The smallest graph for prediction only: shrunk, with values rounded to fp16.

    If `agrees` says that rounding changed a prediction, the values get more bits.
    """
    small = _shrunk(graph)
    half = replace(small, about=_about(small, DEPLOY, FP16))
    if agrees is None or agrees(_rounded(half, HALF_BITS)):
        return half
    for bits in FINER_BITS:
        finer = _rounded(replace(small, about=_about(small, DEPLOY, f"fp32, {bits} bits of mantissa")), bits)
        if agrees(finer):
            return finer
    return replace(small, about=_about(small, DEPLOY, "fp32"))


def deployed_int8(graph: Graph) -> Graph:
    """The same with weights in int8 and a scale for each output channel; predictions may change."""
    small = _shrunk(graph)
    weights = {node.tensors["weight"] for node in small.nodes if node.by_channels}
    tensors = {name: _in_int8(array) if name in weights else array for name, array in small.tensors.items()}
    half = _rounded(replace(small, tensors=tensors), HALF_BITS, but=weights)
    return replace(half, about=_about(small, DEPLOY, INT8))


def _in_int8(weight: NDArray[Any]) -> NDArray[Any]:
    return dequantize_rows(*quantize_rows(weight)) if is_quantizable(weight) else weight


def _shrunk(graph: Graph) -> Graph:
    """The shrunk graph with the smaller file, with or without planes."""
    candidates = [shrink_graph(graph, planes=planes).graph for planes in (True, False)]
    return min(candidates, key=lambda candidate: len(pack(candidate, half=True)))


def _rounded(graph: Graph, bits: int, *, but: Set[str] = frozenset()) -> Graph:
    def rounded(array: NDArray[Any]) -> NDArray[Any]:
        if array.dtype != np.float32:
            return array
        if bits == HALF_BITS:
            fits = bool(np.all(np.abs(array) < np.finfo(np.float16).max))
            return array.astype(np.float16).astype(np.float32) if fits else array
        drop = MANTISSA - bits
        whole = array.view(np.uint32).astype(np.uint64) + (1 << (drop - 1))
        return (whole >> drop << drop).astype(np.uint32).view(np.float32)

    return replace(
        graph, tensors={name: array if name in but else rounded(array) for name, array in graph.tensors.items()}
    )


def _check_about(about: Any) -> None:
    """Check that `about` fits into a file's metadata."""
    try:
        to_json(dict(about))
        dict(about.get("provenance", {}))
    except (TypeError, ValueError, AttributeError) as error:
        said = "`about` is plain JSON, a dict of texts, finite numbers, lists and dicts, and so is its `provenance`"
        raise OptionError(f"{said}: {error}.") from None


def _about(graph: Graph, profile: str, values: str) -> dict[str, Any]:
    made = {"hypersparse": __version__, "torch": str(torch.__version__)}
    provenance = {**made, **graph.about.get("provenance", {})}
    return {**graph.about, "profile": profile, "values": values, "provenance": provenance}


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)

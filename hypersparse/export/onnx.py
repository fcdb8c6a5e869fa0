"""ONNX files, for ONNX Runtime, OpenVINO and whatever else reads them; weights are dense."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim

from hypersparse.errors import ModelError, OptionError
from hypersparse.export.batch_norm_folding import fresh
from hypersparse.export.graph_module import to_module
from hypersparse.export.silence_torch import first_line, quiet
from hypersparse.storage.files import write_atomically
from hypersparse_runtime.graph import INPUT, Graph, Node, bounds, shapes
from hypersparse_runtime.onnx import NAMES, attributes_of

OUTPUT = "output"
OPSET, IR_VERSION = 17, 8  # what engines from 2022 on read
OPSET_OF_TORCH = 18  # the oldest that PyTorch's exporter writes


def save_onnx(graph: Graph, path: str | Path, *, batch: int | None = None) -> int:
    """Write a graph as ONNX with one `input` and one `output`; returns its size in bytes.

    `batch` fixes how many inputs it takes at once; None leaves that open.
    """
    if batch is None:
        batch = graph.about.get("batch")  # 1 where the model was traced for single inputs only
    opaque = any(node.opaque for node in graph.nodes)
    content = _by_torch(graph, batch) if opaque else _by_hand(graph, batch)
    write_atomically(Path(path), lambda beside: _write(beside, content))
    return len(content)


def in_onnx_runtime(path: str | Path, batch: int | None = None) -> Callable[[Tensor], Tensor]:
    """The network in an ONNX file as a function of a batch of inputs, run by ONNX Runtime, `batch` at a time."""
    try:
        import onnxruntime
    except ImportError:
        raise OptionError("Running ONNX files needs ONNX Runtime: pip install onnxruntime.") from None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        rest = -len(inputs) % (batch or len(inputs))
        padded = torch.cat([inputs, inputs.new_zeros(rest, *inputs.shape[1:])])
        made = [session.run(None, {INPUT: part.numpy()})[0] for part in torch.split(padded, batch or len(inputs))]
        return torch.from_numpy(np.concatenate(made))[: len(inputs)]

    return run


def _by_hand(graph: Graph, batch: int | None) -> bytes:
    # Not PyTorch's exporter where it can be avoided: for ResNet-32 it took 12 to 30 s here, this takes under 1 s.
    onnx = _onnx()
    graph = _named_apart(graph)
    sides = shapes(graph)
    nodes = [made for node in graph.nodes for made in _onnx_nodes(onnx, graph, node)]
    used = [name for node in graph.nodes for name in node.tensors.values()]
    arrays = [onnx.numpy_helper.from_array(np.ascontiguousarray(graph.tensors[name]), name) for name in set(used)]
    kind = onnx.helper.np_dtype_to_tensor_dtype(next((graph.tensors[name].dtype for name in used), np.dtype("float32")))
    first = batch if batch is not None else "batch"
    ends = [
        [onnx.helper.make_tensor_value_info(name, kind, [first, *sides[value]])]
        for name, value in ((INPUT, INPUT), (OUTPUT, graph.output))
    ]
    clips = {name: bound for node in graph.nodes for name, bound in _bounds(graph, node).items()}
    number = onnx.helper.tensor_dtype_to_np_dtype(kind)
    arrays += [onnx.numpy_helper.from_array(np.array(bound, number), name) for name, bound in clips.items()]
    body = onnx.helper.make_graph(nodes, "hypersparse", *ends, initializer=sorted(arrays, key=lambda array: array.name))
    model = onnx.helper.make_model(
        body, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="hypersparse"
    )
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _named_apart(graph: Graph) -> Graph:
    """In ONNX values and arrays have one set of names: an array that is called like a value gets another name."""
    values = {INPUT, OUTPUT, *(node.output for node in graph.nodes)}
    taken = dict.fromkeys([*values, *graph.tensors])
    names = {name: fresh(name, taken) if name in values else name for name in graph.tensors}
    nodes = [replace(node, tensors={role: names[name] for role, name in node.tensors.items()}) for node in graph.nodes]
    tensors = {names[name]: array for name, array in graph.tensors.items()}
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _bounds(graph: Graph, node: Node) -> dict[str, float]:
    """The numbers of a `clip` by names that nothing else has: arrays in ONNX."""
    if node.op != "clip":
        return {}
    taken = dict.fromkeys([INPUT, OUTPUT, *(other.output for other in graph.nodes), *graph.tensors])
    names = [fresh(f"{node.output}.{bound}", taken) for bound in ("low", "high")]
    return dict(zip(names, bounds(node), strict=True))


def _onnx_nodes(onnx: Any, graph: Graph, node: Node) -> list[Any]:
    """A node as one or two of ONNX; the network's value is called `output`."""
    inputs = list(node.inputs)
    output = OUTPUT if node.output == graph.output else node.output
    arrays = [node.tensors[role] for role in ("weight", "bias", "mean", "variance", "value") if role in node.tensors]
    arrays += _bounds(graph, node)
    if node.op == "mean":
        inner = f"{node.output}~"
        return [
            onnx.helper.make_node("GlobalAveragePool", inputs, [inner]),
            onnx.helper.make_node("Flatten", [inner], [output]),
        ]
    return [onnx.helper.make_node(NAMES[node.op], inputs + arrays, [output], **attributes_of(node))]


def _by_torch(graph: Graph, batch: int | None) -> bytes:
    """What a graph has no word for, PyTorch's own exporter may know."""
    _onnx()
    model = to_module(graph)
    like = next(iter(model.state_dict().values()), torch.zeros(()))
    example = torch.zeros(batch or 2, *graph.input_shape, dtype=like.dtype)
    dynamic = ({0: Dim("batch")},) if batch is None else None
    with quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                model,
                (example,),
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=dynamic,
                opset_version=OPSET_OF_TORCH,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
            assert program is not None
            content: bytes = program.model_proto.SerializeToString()
        except Exception as error:  # the exporter raises whatever its parts do
            raise ModelError(f"PyTorch cannot write this network as ONNX: {first_line(error)}") from None
    return content


def _onnx() -> Any:
    try:
        import onnx
        import onnxscript  # noqa: F401  # asked for here, not in the middle
    except ImportError:
        raise OptionError("ONNX files need the extra `onnx`: pip install 'hypersparse[onnx]'.") from None
    return onnx


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)

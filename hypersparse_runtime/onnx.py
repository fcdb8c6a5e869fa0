"""A `Graph` as an ONNX model, written without the onnx package: its format is a few nested protocol buffers."""

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.graph import INPUT, SHARES, Graph, GraphError, Node, bounds, shapes

IR_VERSION, OPSET = 8, 17
FLOAT = 1  # among the types of a tensor
ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS = 1, 2, 7
OUTPUT = "output"


def to_onnx(graph: Graph) -> bytes:
    """The model's file; its input is `input`, its output `output`, and any number of images may be given."""
    known = shapes(graph)
    nodes = [_node(graph, node) for node in graph.nodes]
    used = sorted({name for node in graph.nodes for name in node.tensors.values()})
    planes = {node.tensors["value"] for node in graph.nodes if node.op == "plane"}
    arrays = [_tensor(_array_name(name), graph.tensors[name], plane=name in planes) for name in used]
    arrays += [_tensor(name, np.array(bound), plane=False) for node in graph.nodes for name, bound in _bounds(node)]
    body = b"".join(_field(1, node) for node in [part for parts in nodes for part in parts])
    body += _text(2, "hypersparse") + b"".join(_field(5, array) for array in arrays)
    body += _field(11, _value(INPUT, graph.input_shape)) + _field(12, _value(OUTPUT, known[graph.output]))
    opset = _text(1, "") + _number(2, OPSET)
    return _number(1, IR_VERSION) + _text(2, "hypersparse") + _field(7, body) + _field(8, opset)


def _node(graph: Graph, node: Node) -> list[bytes]:
    if node.opaque:
        raise GraphError(f"ONNX files are written without `{node.op}` (`{node.output}`), which only PyTorch can run.")
    name = _value_name(graph, node.output)
    inputs = [_value_name(graph, value) for value in node.inputs]
    arrays = [_array_name(node.tensors[role]) for role in _ROLES.get(node.op, ()) if role in node.tensors]
    if node.op == "mean":
        wide = f"{name} wide"
        return [_call("GlobalAveragePool", inputs, wide), _call("Flatten", [wide], name, {"axis": 1})]
    if node.op == "clip":
        arrays = [name for name, _ in _bounds(node)]
    return [_call(NAMES[node.op], [*inputs, *arrays], name, attributes_of(node))]


def attributes_of(node: Node) -> dict[str, Any]:
    """A node's options as ONNX names them."""
    return _OPTIONS.get(node.op, _no_options)(node)


def _bounds(node: Node) -> list[tuple[str, float]]:
    """The numbers of a `clip` as named arrays, which is how ONNX has them."""
    both = zip(("low", "high"), bounds(node), strict=True) if node.op == "clip" else ()
    return [(f"{name} of {node.output}", bound) for name, bound in both]


_ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "conv": ("weight", "bias"),
        "linear": ("weight", "bias"),
        "batch_norm": ("weight", "bias", "mean", "variance"),
        "plane": ("value",),
    }
)
NAMES: Mapping[str, str] = MappingProxyType(  # of ONNX, for ours
    {
        "conv": "Conv",
        "linear": "Gemm",
        "batch_norm": "BatchNormalization",
        "relu": "Relu",
        "clip": "Clip",
        "add": "Add",
        "concat": "Concat",
        "plane": "Add",
        "max_pool": "MaxPool",
        "avg_pool": "AveragePool",
        "flatten": "Flatten",
        "softmax": "Softmax",
        "log_softmax": "LogSoftmax",
    }
)


def _no_options(_node: Node) -> dict[str, Any]:
    return {}


def _window(node: Node) -> dict[str, Any]:
    edges = node.options["padding"]
    return {"strides": list(node.options["stride"]), "pads": [*edges, *edges]}


def _conv_options(node: Node) -> dict[str, Any]:
    return {**_window(node), "dilations": list(node.options["dilation"]), "group": node.options["groups"]}


def _max_options(node: Node) -> dict[str, Any]:
    return {**_window(node), "kernel_shape": list(node.options["kernel"])}


_OPTIONS: Mapping[str, Callable[[Node], dict[str, Any]]] = MappingProxyType(
    {
        "conv": _conv_options,
        "linear": lambda _node: {"transB": 1},
        "batch_norm": lambda node: {"epsilon": float(node.options["epsilon"])},
        "concat": lambda _node: {"axis": 1},
        "max_pool": _max_options,
        "avg_pool": lambda node: {**_max_options(node), "count_include_pad": 1},
        **dict.fromkeys(("flatten", *SHARES), lambda _node: {"axis": 1}),
    }
)


def _value_name(graph: Graph, name: str) -> str:
    if name == graph.output:
        return OUTPUT
    return INPUT if name == INPUT else f"value {name}"


def _array_name(name: str) -> str:
    return f"array {name}"


def _call(kind: str, inputs: Sequence[str], output: str, options: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    body = b"".join(_text(1, name) for name in inputs) + _text(2, output) + _text(4, kind)
    return body + b"".join(_field(5, _attribute(name, value)) for name, value in options.items())


def _attribute(name: str, value: Any) -> bytes:
    body = _text(1, name)
    if isinstance(value, float):
        return body + _key(2, 5) + struct.pack("<f", value) + _number(20, ATTRIBUTE_FLOAT)
    if isinstance(value, int):
        return body + _number(3, value) + _number(20, ATTRIBUTE_INT)
    return body + b"".join(_number(8, each) for each in value) + _number(20, ATTRIBUTE_INTS)


def _tensor(name: str, array: NDArray[Any], *, plane: bool) -> bytes:
    sides = (1, *array.shape) if plane else array.shape
    raw = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return b"".join(_number(1, side) for side in sides) + _number(2, FLOAT) + _text(8, name) + _field(9, raw)


def _value(name: str, shape: Sequence[int]) -> bytes:
    batch = _field(1, _text(2, "batch"))
    sides = b"".join(_field(1, _number(1, side)) for side in shape)
    tensor = _number(1, FLOAT) + _field(2, batch + sides)
    return _text(1, name) + _field(2, _field(1, tensor))


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(int(value))


def _field(field: int, body: bytes) -> bytes:
    return _key(field, 2) + _varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())

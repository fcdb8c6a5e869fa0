"""A `Graph` as an ONNX model, written without the onnx package: its format is a few nested protocol buffers."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.graph import INPUT, Graph, Node, shapes
from hypersparse_runtime.operations.base import OnnxCall
from hypersparse_runtime.operations.merging import Plane

IR_VERSION, OPSET = 8, 17  # what engines from 2022 on read
ELEMENT_TYPES = {"float32": 1, "float16": 10, "float64": 11}
ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS = 1, 2, 7
OUTPUT = "output"


def to_onnx(graph: Graph, *, batch: int | None = None, dtype: str = "float32") -> bytes:
    """The model's file, with one `input` and one `output` of this type; None leaves the number of images open."""
    known, names = shapes(graph), _Names(graph)
    nodes = [_call(call) for node in graph.nodes for call in names.calls(node)]
    used = sorted({name for node in graph.nodes for name in node.tensors.values()})
    planes = {node.tensors["value"] for node in graph.nodes if node.op == Plane.name}
    arrays = [_tensor(names.array(name), graph.tensors[name], dtype, plane=name in planes) for name in used]
    for node in graph.nodes:
        constants = node.operation.onnx_constants(node)
        arrays += [_tensor(names.constant(node, name), np.array(each), dtype) for name, each in constants.items()]
    body = b"".join(_field(1, node) for node in nodes) + _text(2, "hypersparse")
    body += b"".join(_field(5, array) for array in arrays)
    body += _field(11, _value(INPUT, graph.input_shape, batch, dtype))
    body += _field(12, _value(OUTPUT, known[graph.output], batch, dtype))
    opset = _text(1, "") + _number(2, OPSET)
    return _number(1, IR_VERSION) + _text(2, "hypersparse") + _field(7, body) + _field(8, opset)


class _Names:
    """ONNX has one set of names for values and arrays. A new name has a space, which no name of a graph has."""

    def __init__(self, graph: Graph) -> None:
        self.output, self.values = graph.output, {INPUT, OUTPUT, *(node.output for node in graph.nodes)}

    def value(self, name: str) -> str:
        if name == self.output:
            return OUTPUT
        return f"value {name}" if name == OUTPUT else name

    def array(self, name: str) -> str:
        return f"array {name}" if name in self.values else name

    def constant(self, node: Node, name: str) -> str:
        return f"{name} of {node.output}"

    def calls(self, node: Node) -> list[OnnxCall]:
        """A node of a graph as nodes of ONNX."""
        inputs = [self.value(value) for value in node.inputs]
        inputs += [self.array(node.tensors[role]) for role in node.operation.roles if role in node.tensors]
        inputs += [self.constant(node, name) for name in node.operation.onnx_constants(node)]
        return node.operation.onnx_calls(node, inputs, self.value(node.output))


def _call(call: OnnxCall) -> bytes:
    body = b"".join(_text(1, name) for name in call.inputs) + _text(2, call.output) + _text(4, call.kind)
    return body + b"".join(_field(5, _attribute(name, value)) for name, value in call.attributes.items())


def _attribute(name: str, value: Any) -> bytes:
    body = _text(1, name)
    if isinstance(value, float):
        return body + _key(2, 5) + struct.pack("<f", value) + _number(20, ATTRIBUTE_FLOAT)
    if isinstance(value, int):
        return body + _number(3, value) + _number(20, ATTRIBUTE_INT)
    return body + b"".join(_number(8, each) for each in value) + _number(20, ATTRIBUTE_INTS)


def _tensor(name: str, array: NDArray[Any], dtype: str, *, plane: bool = False) -> bytes:
    sides = (1, *array.shape) if plane else array.shape
    raw = np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()
    return (
        b"".join(_number(1, side) for side in sides)
        + _number(2, ELEMENT_TYPES[dtype])
        + _text(8, name)
        + _field(9, raw)
    )


def _value(name: str, shape: Sequence[int], batch: int | None, dtype: str) -> bytes:
    first = _text(2, "batch") if batch is None else _number(1, batch)
    sides = b"".join(_field(1, side) for side in (first, *(_number(1, side) for side in shape)))
    tensor = _number(1, ELEMENT_TYPES[dtype]) + _field(2, sides)
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

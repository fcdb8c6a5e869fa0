"""A `Graph` as an ONNX model, written without the onnx package: its format is a few nested protocol buffers."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.graph import INPUT, Graph, Node, Shape, shapes
from hypersparse_runtime.operations.base import OnnxCall

IR_VERSION, OPSET = 8, 17  # what engines from 2022 on read
ELEMENT_TYPES = {"float32": 1, "float16": 10, "float64": 11}
INT64 = 7
ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_STRING, ATTRIBUTE_INTS = 1, 2, 3, 7
OUTPUT = "output"


def to_onnx(graph: Graph, *, batch: int | None = None, dtype: str = "float32", input_dtype: str | None = None) -> bytes:
    """The bytes of a model of this type with one `input` and one `output`. `batch=None` leaves the batch size open.

    `input_dtype` is the type of the input, if that is another one: `int64` of token numbers.
    """
    known = shapes(graph)
    names = _Names(graph, known)
    nodes = [_call(call) for node in graph.nodes for call in names.calls(node)]
    arrays = [_tensor(name, array, dtype) for name, array in sorted(names.used.items())]
    body = b"".join(_field(1, node) for node in nodes) + _text(2, "hypersparse")
    body += b"".join(_field(5, array) for array in arrays)
    body += _field(11, _value(INPUT, graph.input_shape, batch, input_dtype or dtype))
    body += _field(12, _value(OUTPUT, known[graph.output], batch, dtype))
    opset = _text(1, "") + _number(2, OPSET)
    return _number(1, IR_VERSION) + _text(2, "hypersparse") + _field(7, body) + _field(8, opset)


class _Names:
    """ONNX has one set of names for values and arrays. New names contain a space, which no name of a graph has."""

    def __init__(self, graph: Graph, known: Mapping[str, Shape]) -> None:
        self.graph, self.known, self.output = graph, known, graph.output
        self.values = {INPUT, OUTPUT, *(node.output for node in graph.nodes)}
        self.used: dict[str, NDArray[Any]] = {}  # arrays by their names in ONNX
        whole = (name for node in graph.nodes if not node.operation.broadcasts for name in node.inputs)
        self.repeated = {graph.output, *whole}

    def value(self, name: str) -> str:
        if name == self.output:
            return OUTPUT
        return f"value {name}" if name == OUTPUT else name

    def array(self, node: Node, role: str) -> str:
        """The name of a node's array; a reshaped copy has another name."""
        name, array = node.tensors[role], self.graph.tensors[node.tensors[role]]
        shape = node.operation.onnx_array_shape(role, array, self.known[node.inputs[0]])
        called = f"array {name}" if name in self.values else name
        called = called if shape == array.shape else f"{called} as {role}"
        self.used[called] = array.reshape(shape)
        return called

    def constant(self, node: Node, name: str, value: Any) -> str:
        """The name of an option that is an input in ONNX."""
        self.used[f"{name} of {node.output}"] = np.array(value)
        return f"{name} of {node.output}"

    def calls(self, node: Node) -> list[OnnxCall]:
        """A node of a graph as nodes of ONNX."""
        operation, shape = node.operation, self.known[node.inputs[0]] if node.inputs else ()
        inputs = [self.value(value) for value in node.inputs]
        if operation.in_onnx:
            inputs += [self.array(node, role) for role in operation.roles if role in node.tensors]
        constants = operation.onnx_constants(self.graph, node, shape)
        inputs += [self.constant(node, name, value) for name, value in constants.items()]
        if node.op == "constant" and node.output in self.repeated:
            return self._repeated(node, inputs)
        return operation.onnx_calls(self.graph, node, inputs, self.value(node.output), shape)

    def _repeated(self, node: Node, inputs: list[str]) -> list[OnnxCall]:
        """A constant, repeated for each input of the batch."""
        output, sides = self.value(node.output), self.constant(node, "sides", self.known[node.output])
        return [
            OnnxCall("Shape", inputs[:1], f"{output} batch", {"start": 0, "end": 1}),
            OnnxCall("Concat", [f"{output} batch", sides], f"{output} shape", {"axis": 0}),
            OnnxCall("Expand", [inputs[1], f"{output} shape"], output),
        ]


def _call(call: OnnxCall) -> bytes:
    body = b"".join(_text(1, name) for name in call.inputs) + _text(2, call.output) + _text(4, call.kind)
    return body + b"".join(_field(5, _attribute(name, value)) for name, value in call.attributes.items())


def _attribute(name: str, value: Any) -> bytes:
    body = _text(1, name)
    if isinstance(value, float):
        return body + _key(2, 5) + struct.pack("<f", value) + _number(20, ATTRIBUTE_FLOAT)
    if isinstance(value, int):
        return body + _number(3, value) + _number(20, ATTRIBUTE_INT)
    if isinstance(value, str):
        return body + _text(4, value) + _number(20, ATTRIBUTE_STRING)
    return body + b"".join(_number(8, each) for each in value) + _number(20, ATTRIBUTE_INTS)


def _tensor(name: str, array: NDArray[Any], dtype: str) -> bytes:
    whole = array.dtype.kind in "iu"
    raw = np.ascontiguousarray(array, dtype="<i8" if whole else np.dtype(dtype).newbyteorder("<")).tobytes()
    return (
        b"".join(_number(1, side) for side in array.shape)
        + _number(2, INT64 if whole else ELEMENT_TYPES[dtype])
        + _text(8, name)
        + _field(9, raw)
    )


def _value(name: str, shape: Sequence[int], batch: int | None, dtype: str) -> bytes:
    first = _text(2, "batch") if batch is None else _number(1, batch)
    sides = b"".join(_field(1, side) for side in (first, *(_number(1, side) for side in shape)))
    tensor = _number(1, INT64 if dtype == "int64" else ELEMENT_TYPES[dtype]) + _field(2, sides)
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
    return _key(field, 0) + _varint(int(value) & 2**64 - 1)  # negative numbers take ten bytes


def _field(field: int, body: bytes) -> bytes:
    return _key(field, 2) + _varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())

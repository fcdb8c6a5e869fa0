"""A network as C99 source: constant arrays of its kept weights and one `predict` function, without malloc."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from math import isfinite, prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import ModelError
from hypersparse.export.batch_norm_folding import readers
from hypersparse.storage.files import write_text
from hypersparse_runtime.graph import INPUT, SHARES, Graph, Node, Shape, bounds, shapes

NUMBERS_PER_LINE = 8
MOST_NUMBERS = 2**24  # 200 MB of text
KERNELS = "kernels.c"  # the functions that every such file begins with


def save_c(graph: Graph, path: str | Path) -> int:
    """Write `path` (.c) and the header beside it (.h); returns the bytes of both.

    `<name>_predict(input, output)` computes one input in C order; it keeps its values in a static buffer, so that two
    threads must not call it at once. With a softmax it needs the C library's mathematics (`-lm`).
    """
    path = Path(path)
    source, header = c_source(graph, path.stem)
    write_text(path.with_suffix(".h"), header)
    write_text(path, source)
    return len(source.encode()) + len(header.encode())


def c_source(graph: Graph, name: str) -> tuple[str, str]:
    """The text of the source and of its header, for a network called `name`."""
    strange = next((node.op for node in graph.nodes if node.opaque), None)
    if strange is not None:
        raise ModelError(f"C source has no function for `{strange}`; export this network as .hsp or .onnx.")
    prefix = re.sub(r"\W", "_", name)
    prefix = prefix if prefix[:1].isalpha() else f"network_{prefix}"
    writer = _Writer(graph, shapes(graph))
    for place, node in enumerate(graph.nodes):
        writer.add(place, node)
    return writer.source(prefix, name), _header(prefix, graph, prod(writer.sides[graph.output]))


def _header(prefix: str, graph: Graph, outputs: int) -> str:
    guard = f"{prefix.upper()}_H"
    shape = " x ".join(str(side) for side in graph.input_shape)
    return (
        f"/* A sparse network written by hypersparse. Input: {shape}, in C order, normalised as in training. */\n"
        f"#ifndef {guard}\n#define {guard}\n\n"
        f"#define {prefix.upper()}_INPUTS {prod(graph.input_shape)}\n"
        f"#define {prefix.upper()}_OUTPUTS {outputs}\n\n"
        f"void {prefix}_predict(const float *input, float *output);\n\n#endif\n"
    )


@dataclass
class _Buffer:
    """A stretch of memory that holds one value after the other."""

    size: int
    reads_left: int


@dataclass
class _Writer:
    """Collects the arrays and the calls of a network, and decides which value lies in which buffer."""

    graph: Graph
    sides: Mapping[str, Shape]
    arrays: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    buffers: list[_Buffer] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # values by their buffer
    largest_index: int = 0
    numbers: int = 0  # in all arrays
    reads: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = readers(self.graph)

    def add(self, place: int, node: Node) -> None:
        """Write a node's arrays and its call."""
        size = prod(self.sides[node.output])
        for name in node.inputs:
            if name != INPUT:
                self.buffers[self.places[name]].reads_left -= 1
        source = self.places.get(node.inputs[0])
        free = source is not None and self.buffers[source].reads_left == 0
        if node.op in IN_PLACE and free:
            assert source is not None
            target = source
        elif node.op == "flatten" and source is not None:
            target = source
        else:
            target = self._buffer(size, node)
        self.buffers[target].reads_left += self.reads[node.output]
        self.places[node.output] = target
        inputs = [self._pointer(name) for name in node.inputs]
        self.calls.append(EMITTERS[node.op](self, node, f"l{place}", inputs, f"buffer_{target}"))

    def _buffer(self, size: int, node: Node) -> int:
        """The free buffer that must grow least, or a new one; never one that the node itself reads."""
        own = {self.places.get(name) for name in node.inputs}
        free = [place for place, buffer in enumerate(self.buffers) if buffer.reads_left == 0 and place not in own]
        if not free:
            self.buffers.append(_Buffer(size, 0))
            return len(self.buffers) - 1
        best = min(free, key=lambda place: abs(self.buffers[place].size - size))
        self.buffers[best].size = max(self.buffers[best].size, size)
        return best

    def _pointer(self, name: str) -> str:
        return "input" if name == INPUT else f"buffer_{self.places[name]}"

    def array(self, name: str, values: NDArray[Any] | None, kind: str = "float") -> str:
        """Write a constant array; returns what to call it, NULL for none."""
        if values is None:
            return "NULL"
        numbers = np.asarray(values).ravel()
        numbers = numbers if numbers.size else np.zeros(1, numbers.dtype)
        self.numbers += numbers.size
        if self.numbers > MOST_NUMBERS:
            said = f"C source of this network has more than {MOST_NUMBERS} numbers"
            raise ModelError(f"{said}; export it as .hsp or .onnx, or shrink it first.")
        lines = range(0, numbers.size, NUMBERS_PER_LINE)
        rows = (
            ", ".join(_number(value, kind) for value in numbers[at : at + NUMBERS_PER_LINE].tolist()) for at in lines
        )
        body = ",\n    ".join(rows)
        self.arrays.append(f"static const {kind} {name}[{numbers.size}] = {{\n    {body}\n}};\n")
        return name

    def sparse(self, name: str, weight: NDArray[Any]) -> str:
        """Write a layer's kept weights row by row: where rows begin, places in the row, values."""
        rows = weight.reshape(len(weight), -1)
        row, column = np.nonzero(rows)
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows)))])
        self.largest_index = max(self.largest_index, int(column.max(initial=0)))
        return ", ".join(
            (
                self.array(f"{name}_rows", starts, "uint32_t"),
                self.array(f"{name}_places", column, "place_t"),
                self.array(f"{name}_values", rows[row, column].astype(np.float32)),
            )
        )

    def source(self, prefix: str, stem: str) -> str:
        """The whole file."""
        kernels = (resources.files("hypersparse.export") / KERNELS).read_text()
        kind = "uint16_t" if self.largest_index < 2**16 else "uint32_t"
        outputs = prod(self.sides[self.graph.output])
        buffers = "\n".join(f"static float buffer_{place}[{buffer.size}];" for place, buffer in enumerate(self.buffers))
        calls = "\n    ".join([*self.calls, f"copy({self._pointer(self.graph.output)}, output, {outputs});"])
        used = [part for part in re.split(r"\n(?=static )", kernels) if _is_called(part, calls)]
        math = "#include <math.h>\n" if re.search(r"\bINFINITY\b|softmax\(", calls) else ""
        head = f'{math}#include <stddef.h>\n#include <stdint.h>\n#include "{stem}.h"\n\ntypedef {kind} place_t;\n'
        body = f"void {prefix}_predict(const float *input, float *output)\n{{\n    {calls}\n}}\n"
        return "\n".join([head, *used, *self.arrays, buffers, "", body])


def _is_called(function: str, calls: str) -> bool:
    name = re.search(r"static void (\w+)\(", function)
    return name is not None and re.search(rf"\b{name[1]}\(", calls) is not None


def _number(value: float, kind: str) -> str:
    if kind != "float":
        return str(value)
    if not np.isfinite(value):
        raise ModelError("The network has weights that are infinite or not a number; C source cannot hold them.")
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


Emitter = Callable[[_Writer, Node, str, list[str], str], str]


def _numbers(*values: int) -> str:
    return ", ".join(str(value) for value in values)


def _conv(writer: _Writer, node: Node, name: str, inputs: list[str], output: str) -> str:
    weight = writer.graph.array(node, "weight")
    assert weight is not None
    kept, bias = writer.sparse(name, weight), writer.array(f"{name}_bias", writer.graph.array(node, "bias"))
    options, into, out = node.options, writer.sides[node.inputs[0]], writer.sides[node.output]
    how = _numbers(*weight.shape[2:], *options["stride"], *options["padding"], *options["dilation"])
    groups = _numbers(weight.shape[1], weight.shape[0] // options["groups"])
    return f"conv({inputs[0]}, {output}, {_numbers(*into[1:], *out)}, {how}, {groups}, {kept}, {bias});"


def _linear(writer: _Writer, node: Node, name: str, inputs: list[str], output: str) -> str:
    weight = writer.graph.array(node, "weight")
    assert weight is not None
    kept, bias = writer.sparse(name, weight), writer.array(f"{name}_bias", writer.graph.array(node, "bias"))
    return f"linear({inputs[0]}, {output}, {len(weight)}, {kept}, {bias});"


def _batch_norm(writer: _Writer, node: Node, name: str, inputs: list[str], output: str) -> str:
    gain, shift, mean, variance = (
        np.asarray(writer.graph.array(node, role), np.float64) for role in ("weight", "bias", "mean", "variance")
    )
    scale = gain / np.sqrt(variance + node.options["epsilon"])
    shape = writer.sides[node.output]
    scales = writer.array(f"{name}_scale", scale.astype(np.float32))
    shifts = writer.array(f"{name}_shift", (shift - mean * scale).astype(np.float32))
    return f"scale({inputs[0]}, {output}, {_numbers(shape[0], prod(shape[1:]))}, {scales}, {shifts});"


def _relu(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    return f"relu({inputs[0]}, {output}, {prod(writer.sides[node.output])});"


def _clip(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    between = ", ".join(_number(bound, "float") if isfinite(bound) else _infinite(bound) for bound in bounds(node))
    return f"clip({inputs[0]}, {output}, {prod(writer.sides[node.output])}, {between});"


def _infinite(bound: float) -> str:
    return "INFINITY" if bound > 0 else "-INFINITY"


def _add(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    return f"add({inputs[0]}, {inputs[1]}, {output}, {prod(writer.sides[node.output])});"


def _concat(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    calls, first = [], 0
    for name, pointer in zip(node.inputs, inputs, strict=True):
        size = prod(writer.sides[name])
        calls.append(f"copy({pointer}, {output} + {first}, {size});")
        first += size
    return "\n    ".join(calls)


def _plane(writer: _Writer, node: Node, name: str, inputs: list[str], output: str) -> str:
    value = writer.array(f"{name}_plane", writer.graph.array(node, "value"))
    return f"add({inputs[0]}, {value}, {output}, {prod(writer.sides[node.output])});"


def _pool(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    options, into, out = node.options, writer.sides[node.inputs[0]], writer.sides[node.output]
    how = _numbers(*options["kernel"], *options["stride"], *options["padding"])
    return f"{node.op}({inputs[0]}, {output}, {_numbers(*into[1:], *out)}, {how});"


def _mean(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    shape = writer.sides[node.inputs[0]]
    return f"mean({inputs[0]}, {output}, {_numbers(shape[0], prod(shape[1:]))});"


def _softmax(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    return f"{node.op}({inputs[0]}, {output}, {prod(writer.sides[node.output])});"


def _flatten(writer: _Writer, node: Node, _name: str, inputs: list[str], output: str) -> str:
    if inputs[0] == output:
        return f"/* {node.output} is the same numbers as a vector */"
    return f"copy({inputs[0]}, {output}, {prod(writer.sides[node.output])});"


IN_PLACE = ("relu", "clip", "plane", "batch_norm", "add", *SHARES)
EMITTERS: Mapping[str, Emitter] = MappingProxyType(
    {
        "conv": _conv,
        "linear": _linear,
        "batch_norm": _batch_norm,
        "relu": _relu,
        "clip": _clip,
        "add": _add,
        "concat": _concat,
        "plane": _plane,
        "max_pool": _pool,
        "avg_pool": _pool,
        "mean": _mean,
        "flatten": _flatten,
        **dict.fromkeys(SHARES, _softmax),
    }
)

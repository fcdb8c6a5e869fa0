"""`CWriter`: the arrays, buffers and calls of a network in C."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from math import isinf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import ModelError
from hypersparse.export.batch_norm_folding import readers
from hypersparse_runtime.graph import INPUT, Graph, Node, Shape

NUMBERS_PER_LINE = 8
MOST_NUMBERS = 2**24  # 200 MB of text
KERNELS = "kernels.c"  # the functions that every such file begins with


@dataclass
class _Buffer:
    """A stretch of memory that holds one value after the other."""

    size: int
    reads_left: int


@dataclass
class CWriter:
    """Collects the arrays and the calls of a network, and decides which value lies in which buffer."""

    graph: Graph
    shapes: Mapping[str, Shape]
    arrays: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    buffers: list[_Buffer] = field(default_factory=list)
    buffer_of: dict[str, int] = field(default_factory=dict)  # by the name of a value
    largest_index: int = 0
    numbers: int = 0  # in all arrays
    reads: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = readers(self.graph)

    def place(self, node: Node, *, in_place: bool, is_view: bool) -> None:
        """Choose the buffer of the node's output: perhaps its input's, if nobody reads that later or it is a view."""
        for name in node.inputs:
            if name != INPUT:
                self.buffers[self.buffer_of[name]].reads_left -= 1
        source = self.buffer_of.get(node.inputs[0])
        free = source is not None and self.buffers[source].reads_left == 0
        if source is not None and (is_view or (in_place and free)):
            target = source
        else:
            target = self._buffer(self.size(node), node)
        self.buffers[target].reads_left += self.reads[node.output]
        self.buffer_of[node.output] = target

    def call(self, function: str, node: Node, *arguments: object) -> str:
        """A call with the node's first input, its output and more arguments."""
        pointers = (self.pointer(node.inputs[0]), self.pointer(node.output))
        return f"{function}({', '.join(map(str, (*pointers, *arguments)))});"

    def size(self, node: Node) -> int:
        """Elements of the node's output."""
        return prod(self.shapes[node.output])

    def pointer(self, name: str) -> str:
        """Where a value lies."""
        return "input" if name == INPUT else f"buffer_{self.buffer_of[name]}"

    def _buffer(self, size: int, node: Node) -> int:
        """The free buffer that must grow least, or a new one; never one that the node itself reads."""
        own = {self.buffer_of.get(name) for name in node.inputs}
        free = [index for index, buffer in enumerate(self.buffers) if buffer.reads_left == 0 and index not in own]
        if not free:
            self.buffers.append(_Buffer(size, 0))
            return len(self.buffers) - 1
        best = min(free, key=lambda index: abs(self.buffers[index].size - size))
        self.buffers[best].size = max(self.buffers[best].size, size)
        return best

    def array(self, name: str, values: NDArray[Any] | None, kind: str = "float") -> str:
        """Write a constant array; returns what to call it, NULL for none."""
        if values is None:
            return "NULL"
        numbers = np.asarray(values).ravel()
        numbers = numbers if numbers.size else np.zeros(1, numbers.dtype)
        if not np.isfinite(numbers).all():
            raise ModelError("The network has weights that are infinite or not a number; C source cannot hold them.")
        self.numbers += numbers.size
        if self.numbers > MOST_NUMBERS:
            said = f"C source of this network has more than {MOST_NUMBERS} numbers"
            raise ModelError(f"{said}; export it as .hsp or .onnx, or shrink it first.")
        lines = range(0, numbers.size, NUMBERS_PER_LINE)
        rows = (
            ", ".join(self.number(value, kind) for value in numbers[at : at + NUMBERS_PER_LINE].tolist())
            for at in lines
        )
        body = ",\n    ".join(rows)
        self.arrays.append(f"static const {kind} {name}[{numbers.size}] = {{\n    {body}\n}};\n")
        return name

    def layer_arrays(self, node: Node, prefix: str) -> tuple[str, str, str, str]:
        """Write a layer's nonzero weights row by row: where rows begin, indices in the row, values; and its bias."""
        weight = self.graph.tensors[node.tensors["weight"]]
        rows = weight.reshape(len(weight), -1)
        row, column = np.nonzero(rows)
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows)))])
        self.largest_index = max(self.largest_index, int(column.max(initial=0)))
        return (
            self.array(f"{prefix}_rows", starts, "uint32_t"),
            self.array(f"{prefix}_places", column, "place_t"),
            self.array(f"{prefix}_values", rows[row, column].astype(np.float32)),
            self.array(f"{prefix}_bias", self.graph.array(node, "bias")),
        )

    @staticmethod
    def number(value: float, kind: str = "float") -> str:
        """A literal of C."""
        if kind != "float":
            return str(value)
        if isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        text = f"{value:.9g}"
        return f"{text}f" if "." in text or "e" in text else f"{text}.0f"

    def source(self, prefix: str, stem: str) -> str:
        """The whole file."""
        kernels = (resources.files("hypersparse.export") / KERNELS).read_text()
        kind = "uint16_t" if self.largest_index < 2**16 else "uint32_t"
        outputs = prod(self.shapes[self.graph.output])
        buffers = "\n".join(f"static float buffer_{index}[{buffer.size}];" for index, buffer in enumerate(self.buffers))
        calls = "\n    ".join([*self.calls, f"copy({self.pointer(self.graph.output)}, output, {outputs});"])
        used = [part for part in re.split(r"\n(?=static )", kernels) if _is_called(part, calls)]
        math = "#include <math.h>\n" if re.search(r"\bINFINITY\b|softmax\(", calls) else ""
        head = f'{math}#include <stddef.h>\n#include <stdint.h>\n#include "{stem}.h"\n\ntypedef {kind} place_t;\n'
        body = f"void {prefix}_predict(const float *input, float *output)\n{{\n    {calls}\n}}\n"
        return "\n".join([head, *used, *self.arrays, buffers, "", body])


def _is_called(function: str, calls: str) -> bool:
    name = re.search(r"static void (\w+)\(", function)
    return name is not None and re.search(rf"\b{name[1]}\(", calls) is not None

"""`CWriter`: the arrays, the memory and the calls of a network in C."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf, prod
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import ModelError
from hypersparse.export.arena import Arena
from hypersparse.export.c_kernels import FLOATS, INTEGERS, SHARED, TYPES, functions_for
from hypersparse.export.c_views import MOST_AXES, CView, joint_views
from hypersparse_runtime.graph import INPUT, Shape
from hypersparse_runtime.views import View

MATHEMATICS = re.compile(r"INFINITY|\b(?:exp|expm1|log|log1p|tanh|erf|sqrt|fabs)f\(")
NUMBERS_PER_LINE = 8
MOST_NUMBERS = 2**24  # 200 MB of text
FLOAT = "f32"
WORD = 4  # bytes


class AnyNode(Protocol):
    """What a node of a graph and one of a quantized graph have."""

    @property
    def op(self) -> str: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def output(self) -> str: ...


N = TypeVar("N", bound=AnyNode)


@dataclass
class CWriter:
    """Collects the arrays and the calls of a network. Values are named as in the graph."""

    shapes: Mapping[str, Shape]
    types: Mapping[str, str]  # of the elements of each value, as in `TYPES`
    output: str
    arena: Arena
    outside: Mapping[str, str]  # what values that do not lie in the arena are called
    tensors: Mapping[str, NDArray[Any]]  # of a graph, by name
    arrays: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    shared: dict[tuple[str, str], str] = field(default_factory=dict)  # the names of structs, by type and content
    largest_side: int = 0
    largest_index: int = 0
    largest_count: int = 0
    numbers: int = 0  # in all arrays

    def call(self, function: str, node: AnyNode, *arguments: object) -> str:
        """A call with the node's first input, its output and more arguments."""
        pointers = (self.pointer(node.inputs[0]), self.pointer(node.output))
        return f"{function}({', '.join(map(str, (*pointers, *arguments)))});"

    def size(self, name: str) -> int:
        """Elements of a value."""
        return prod(self.shapes[name])

    def pointer(self, name: str) -> str:
        """Where a value lies."""
        if name in self.outside:
            return self.outside[name]
        return self._in_arena(self.arena.values[name], self.types[name])

    def scratch(self, node: AnyNode, kind: str = "i32") -> str:
        """Where the node's own numbers lie."""
        return self._in_arena(self.arena.scratch[node.output], kind)

    def _in_arena(self, offset: int, kind: str) -> str:
        base = f"({TYPES[kind]} *)arena"
        return f"{base} + {offset // BYTES[kind]}" if offset else base

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

    def struct(self, kind: str, name: str, members: Sequence[object]) -> str:
        """Write a constant struct; returns a pointer to it."""
        self.arrays.append(f"static const {kind} {name} = {{{', '.join(map(str, members))}}};\n")
        return f"&{name}"

    def window(self, sizes: Sequence[int]) -> str:
        """The sizes of a convolution or pooling as a struct that equal ones share."""
        self.largest_side = max(self.largest_side, *map(abs, sizes))
        return self._shared("window", sizes)

    def view(self, view: CView) -> str:
        """A view as a struct that equal ones share."""
        *sides, length = view.sides or (1,)
        *steps, step = view.steps or (0,)
        rest = ["0"] * (MOST_AXES - 1 - len(sides))
        axes = (f"{{{', '.join([*map(str, each), *rest])}}}" for each in (sides, steps))
        return self._shared("view", (view.first, prod(sides), length, step, len(sides), *axes))

    def joined(self, node: AnyNode) -> list[str]:
        """Where two values and what is made of them lie, and how the values are read with its axes."""
        shape = self.shapes[node.output]
        views = joint_views([View.whole(name, self.shapes[name]).expanded(shape) for name in node.inputs])
        return [*(self.pointer(name) for name in (*node.inputs, node.output)), *(self.view(view) for view in views)]

    def _shared(self, kind: str, members: Sequence[object]) -> str:
        key = kind, ", ".join(map(str, members))
        if key not in self.shared:
            self.shared[key] = f"{kind}_{len(self.shared)}"
            self.struct(f"{kind}_t", self.shared[key], members)
        return f"&{self.shared[key]}"

    def layer_arrays(self, prefix: str, weight: NDArray[Any], kind: str) -> tuple[str, str, str]:
        """Write a layer's nonzero weights row by row: where rows begin, indices in the row, values."""
        rows = weight.reshape(len(weight), -1)
        row, column = np.nonzero(rows)
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows)))])
        self.largest_index = max(self.largest_index, int(column.max(initial=0)))
        self.largest_count = max(self.largest_count, len(row))
        return (
            self.array(f"{prefix}_rows", starts, "count_t"),
            self.array(f"{prefix}_places", column, "place_t"),
            self.array(f"{prefix}_values", rows[row, column], kind),
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
        calls = "\n    ".join(self.calls)
        given, made = (TYPES[self.types[name]] for name in (INPUT, self.output))
        of_floats = self.types[self.output] == FLOAT
        typedefs = {
            "side_t": "int16_t" if self.largest_side < 2**15 else "int32_t",
            "place_t": _index_type(self.largest_index),
            "count_t": _index_type(self.largest_count),
            "sum_t": "float" if of_floats else "int32_t",
        }
        used = functions_for("\n".join([*self.arrays, calls]), (SHARED, FLOATS if of_floats else INTEGERS))
        math = "#include <math.h>\n" if of_floats and MATHEMATICS.search("".join([*used, calls])) else ""
        head = f'{math}#include <stddef.h>\n#include <stdint.h>\n#include "{stem}.h"\n\n' + "".join(
            f"typedef {kind} {name};\n" for name, kind in typedefs.items()
        )
        words, content = self.arena.size // WORD, "/* every value between input and output */"
        memory = [f"static {typedefs['sum_t']} arena[{words}]; {content}\n"] if words else []
        body = f"void {prefix}_predict(const {given} *input, {made} *output)\n{{\n    {calls}\n}}\n"
        return "\n".join([head, *used, *self.arrays, *memory, body])


BYTES: Mapping[str, int] = {"f32": 4, "i8": 1, "u8": 1, "i16": 2, "i32": 4}


def _index_type(largest: int) -> str:
    return "uint16_t" if largest < 2**16 else "uint32_t"


def fused_sums(nodes: Sequence[N]) -> dict[str, tuple[N, str]]:
    """Convolutions whose output only a sum reads: by that output, the sum and what else it adds, which exists before.

    Such a sum is part of the convolution: it lies over the other value, so that one value less is needed at once.
    """
    reads = Counter(name for node in nodes for name in node.inputs)
    made = {node.output: place for place, node in enumerate(nodes)}
    found = {}
    for node in nodes:
        if node.op != "add" or node.inputs[0] == node.inputs[1]:
            continue
        last, other = sorted(node.inputs, key=lambda name: -made.get(name, -1))
        if last in made and nodes[made[last]].op == "conv" and reads[last] == 1:
            found[last] = (node, other)
    return found

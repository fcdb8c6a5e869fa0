"""Operations of PyTorch that a graph has no word for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypersparse_runtime.ir import Array
from hypersparse_runtime.operations.base import Channels, OnnxCall, Operation, Shape, unsupported

if TYPE_CHECKING:
    from hypersparse_runtime.graph import Graph, Node
    from hypersparse_runtime.limits import WorkCounter
    from hypersparse_runtime.lowering import Lowering


class Opaque(Operation):
    """Any operation that is not in the table. It says its shape itself, and only PyTorch can run it."""

    name, inputs = "opaque", None
    passes = Channels.ALL

    def shape(self, graph: "Graph", node: "Node", inputs: list[Shape]) -> Shape:
        shape = node.options.get("shape")
        return tuple(shape) if shape is not None else (1,)  # None: several values

    def count_work(self, work: "WorkCounter", node: "Node") -> None:
        """Nothing: PyTorch's part of the work is counted where PyTorch is."""

    def compute(self, graph: "Graph", node: "Node", *inputs: Array) -> Array:
        raise unsupported(node)

    def lower(self, lowering: "Lowering", node: "Node") -> None:
        raise unsupported(node)

    def onnx_calls(self, node: "Node", inputs: Sequence[str], output: str) -> list[OnnxCall]:
        raise unsupported(node)

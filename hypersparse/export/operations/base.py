"""`TorchOperation`: the PyTorch and C side of an operation in `hypersparse_runtime.operations`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor, nn

from hypersparse.export.aten_call import Call
from hypersparse.export.c_writer import CWriter
from hypersparse.export.integer_rules import IntegerRule
from hypersparse_runtime.graph import Graph, Node, Shape


class TorchOperation(ABC):
    """One operation of a graph in PyTorch and in C."""

    name: ClassVar[str]  # in `hypersparse_runtime.operations.OPERATIONS`
    calls: ClassVar[tuple[str, ...]] = ()  # of PyTorch that may become it by themselves, without `aten.`: see `rules`
    floats_only: ClassVar[bool] = False  # values and arrays have one floating-point type
    costs_as: ClassVar[str] = ""  # the operation of PyTorch that takes as long; elements are counted without it
    module_roles: ClassVar[Mapping[str, str]] = MappingProxyType({"weight": "weight", "bias": "bias"})  # in a module
    int8: ClassVar[IntegerRule | None] = None  # what it is in integers; None: int8 activations refuse it
    c_view: ClassVar[bool] = False  # whether its output is the memory of its input
    c_in_place: ClassVar[bool] = False  # whether C may write the output over the input

    def from_aten(self, call: Call) -> Node | None:
        """The node for one of its calls; None if the operation does not compute what the call does."""
        return call.made(self.name)

    def work(self, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> int | None:
        """Multiplications, for operations whose cost no operation of PyTorch gives."""
        return None

    @abstractmethod
    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        """The output in PyTorch."""

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        """The call of its C function. Names of arrays begin with the prefix."""
        return writer.call(self.name, node, writer.size(node.output))

    def c_scratch(self, shape: Shape) -> int:
        """Bytes that its C function needs besides its values, by the shape of the output."""
        return 0

    def compute_constant(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        """The output for one input of any size, with which `shrink` computes constants."""
        return self.compute(node, inputs, tensors)

    def module(self, graph: Graph, node: Node, *, flat: bool) -> nn.Module | None:
        """A PyTorch module without values for a node with arrays; `flat` for vectors."""
        return None

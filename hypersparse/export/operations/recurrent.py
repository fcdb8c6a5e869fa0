"""LSTM and GRU in PyTorch and C."""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from hypersparse.export.c_writer import FLOAT, CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse.export.operations.layers import c_layer
from hypersparse_runtime.graph import Node, Shape


class Lstm(TorchOperation):
    """A layer of `nn.LSTM` in one direction."""

    name, floats_only = "lstm", True
    c_gates = 4

    def work(self, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> int:
        """Multiplications."""
        return prod(inputs[0].shape[:2]) * sum(array.numel() for array in tensors.values())

    def c_scratch(self, shape: Shape) -> int:
        """Two sums for each gate, the cell, and the state before the first step."""
        return 4 * (2 * self.c_gates + 2) * shape[-1]

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        layers = [
            c_layer(writer, node, f"{prefix}_{kind}", roles=(f"weight_{kind}", f"bias_{kind}")) for kind in ("ih", "hh")
        ]
        sizes = (*writer.shapes[node.inputs[0]], writer.shapes[node.output][-1], node.options["reverse"])
        return writer.call(self.name, node, *sizes, *layers, writer.scratch(node, FLOAT))

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        roles = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        params = [tensors[role] for role in roles[:2]]
        if "bias_ih" in tensors or "bias_hh" in tensors:
            params += [tensors.get(role, params[1].new_zeros(len(params[1]))) for role in roles[2:]]
        x = inputs[0].flip(1) if node.options["reverse"] else inputs[0]
        made = self._run(x, x.new_zeros(1, len(x), params[1].shape[1]), params)
        return made.flip(1) if node.options["reverse"] else made

    def _run(self, x: Tensor, state: Tensor, params: list[Tensor]) -> Tensor:
        made: Tensor = torch.lstm(x, [state, state], params, len(params) > 2, 1, 0.0, False, False, True)[0]
        return made


class Gru(Lstm):
    """A layer of `nn.GRU` in one direction."""

    name, c_gates = "gru", 3

    def _run(self, x: Tensor, state: Tensor, params: list[Tensor]) -> Tensor:
        made: Tensor = torch.gru(x, state, params, len(params) > 2, 1, 0.0, False, False, True)[0]
        return made

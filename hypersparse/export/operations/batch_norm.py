"""Batch norm in PyTorch and C."""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.export.aten_call import Call
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.graph import Graph, Node
from hypersparse_runtime.names import MADE

if TYPE_CHECKING:
    from hypersparse.export.c_source import CWriter

ROLES = MappingProxyType({"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"})


class BatchNorm(TorchOperation):
    """`nn.BatchNorm1d` and `nn.BatchNorm2d` in evaluation mode."""

    name, floats_only, c_in_place = "batch_norm", True, True
    calls = ("_native_batch_norm_legit_no_training.default",)
    module_roles = ROLES

    def from_aten(self, call: Call) -> Node | None:
        """PyTorch's decomposed norm gives three values, of which one call picks the first."""
        given, state = call.arguments, call.state
        named = [given[name] for name in ROLES.values() if given[name] is not None]
        whole = all(array in state.arrays for array in named) and len(call.node.meta["val"][0].shape) in (2, 4)
        if not whole or len(call.node.users) != 1:
            return None
        (picked,) = call.node.users
        arrays = {}
        for role, name in ROLES.items():
            if given[name] is not None:
                arrays[role] = state.arrays[given[name]]
                continue
            arrays[role] = f"{MADE}{picked.name}.{role}"  # a norm without weights of its own
            like = state.tensors[state.arrays[given["running_mean"]]]
            state.tensors[arrays[role]] = like * 0 + (1 if role == "weight" else 0)
        source = state.values[call.node.args[0]]  # type: ignore[index]
        return Node(self.name, (source,), picked.name, arrays, {"epsilon": float(given["eps"])})

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        mean, variance = tensors["mean"].detach(), tensors["variance"].detach()
        epsilon = node.options["epsilon"]
        return functional.batch_norm(inputs[0], mean, variance, tensors["weight"], tensors["bias"], eps=epsilon)

    def module(self, graph: Graph, node: Node, *, flat: bool) -> nn.Module:
        channels = len(graph.tensors[node.tensors["weight"]])
        kind = nn.BatchNorm1d if flat else nn.BatchNorm2d
        norm = kind(channels, eps=node.options["epsilon"], device="meta")
        norm.num_batches_tracked = torch.tensor(0)
        return norm

    def c_call(self, writer: "CWriter", node: Node, prefix: str) -> str:
        gain, shift, mean, variance = (np.asarray(writer.graph.array(node, role), np.float64) for role in ROLES)
        scale = gain / np.sqrt(variance + node.options["epsilon"])
        channels, *sides = writer.shapes[node.output]
        scales = writer.array(f"{prefix}_scale", scale.astype(np.float32))
        shifts = writer.array(f"{prefix}_shift", (shift - mean * scale).astype(np.float32))
        return writer.call("scale", node, channels, prod(sides), scales, shifts)

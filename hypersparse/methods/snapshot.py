"""Copies of a network: compact ones of a pruned network, or whole ones."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hypersparse.methods.base import TrainingState
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.selection import all_tensors
from hypersparse.sparsity.weights import PrunableWeights


def snapshot(weights: PrunableWeights, mask: Mask) -> dict[str, Any]:
    """The network now, pruned by `mask`, with its norms, biases and running statistics.

    Where `fully_shard` has spread it, a copy has all numbers: compact, its parts could not be given to other ranks.
    """
    sharded = mask.is_sharded
    weights.reshard_()
    return {
        "mask": dict(mask) if sharded else mask.pack(),
        "kept": {
            name: weight.detach().masked_fill(~mask[name], 0.0) if sharded else weight.detach()[mask[name]]
            for name, weight in weights.items()
        },
        "rest": {
            name: tensor.detach().clone() for name, tensor in all_tensors(weights.model).items() if name not in weights
        },
    }


def restore_(weights: PrunableWeights, copy: dict[str, Any]) -> None:
    """Restore a pruned copy and set its mask."""
    weights.reshard_()
    sharded = weights.shard_group is not None
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    mask = (Mask(copy["mask"]) if sharded else Mask.unpack(copy["mask"], shapes)).to(weights.device)
    with torch.no_grad():
        for name, weight in weights.items():
            if sharded:
                weight.copy_(copy["kept"][name])
            else:
                weight.zero_()
                weight[mask[name]] = copy["kept"][name].to(weight.device)
        rest = all_tensors(weights.model)
        for name, tensor in copy["rest"].items():
            rest[name].copy_(tensor)
    weights.set_mask_(mask)


@dataclass
class NetworkCopy:
    """A whole network with its norms and running statistics, on the CPU."""

    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, weights: PrunableWeights) -> "NetworkCopy":
        """A copy of the current network."""
        tensors = all_tensors(weights.model).items()
        return cls({name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors})


def rewind_(state: TrainingState, mask: Mask) -> None:
    """Restore the stored network and set `mask`."""
    copy = state.memory.get(NetworkCopy)
    assert copy is not None
    with torch.no_grad():
        for name, tensor in all_tensors(state.weights.model).items():
            tensor.copy_(copy.tensors[name])
    state.weights.set_mask_(mask)

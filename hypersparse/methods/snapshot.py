"""A pruned copy of a network in little memory: kept values, packed mask, everything else as it is."""

from typing import Any

import torch

from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights


def snapshot(weights: PrunableWeights, mask: Mask) -> dict[str, Any]:
    """The network now, pruned by `mask`, with its norms, biases and running statistics."""
    return {
        "mask": mask.pack(),
        "kept": {name: weight.detach()[mask[name]] for name, weight in weights.items()},
        "rest": {name: tensor.clone() for name, tensor in weights.model.state_dict().items() if name not in weights},
    }


def restore_(weights: PrunableWeights, copy: dict[str, Any]) -> None:
    """Make the network that copy again; its mask holds from now on."""
    mask = Mask.unpack(copy["mask"], {name: tuple(weight.shape) for name, weight in weights.items()})
    mask = mask.to(weights.device)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.zero_()
            weight[mask[name]] = copy["kept"][name].to(weight.device)
        rest = weights.model.state_dict()
        for name, tensor in copy["rest"].items():
            rest[name].copy_(tensor)
    weights.set_mask_(mask)

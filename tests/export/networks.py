"""Small sparse networks that several tests of exports use."""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor, nn

from hypersparse import models
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import Graph

SHAPES = {"resnet8": (3, 10, 12), "vgg11": (3, 16, 16), "wide_resnet": (3, 8, 8), "mlp": (1, 5, 5)}
OPTIONS = {
    "resnet8": {"width": 6},
    "vgg11": {"width": 6},
    "wide_resnet": {"depth": 10, "factor": 1},
    "mlp": {"hidden": [20, 10]},
}


class Expm1(nn.Module):
    """A function of each element that only PyTorch runs."""

    def forward(self, x: Tensor) -> Tensor:
        return x.expm1()


def sparse_model(name: str, *, density: float, seed: int = 0, clustered: bool = True) -> nn.Module:
    """A model in evaluation mode with zeros in whole channels and statistics as if it had been trained."""
    generator = torch.Generator().manual_seed(seed)
    model = models.build(name, shape=SHAPES[name], classes=4, options=OPTIONS[name]).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor, spread, center in (
                    (module.running_mean, 0.3, 0.0),
                    (module.running_var, 0.2, 1.0),
                    (module.weight, 0.2, 1.0),
                    (module.bias, 0.3, 0.0),
                ):
                    assert tensor is not None
                    tensor.copy_(center + spread * torch.randn(tensor.shape, generator=generator).clamp(-3, 3))
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.copy_(_sparse(weight, density, clustered, generator))
    return model


def _sparse(weight: Tensor, density: float, clustered: bool, generator: torch.Generator) -> Tensor:
    chance = torch.full(weight.shape[:2], density)
    if clustered:
        chance = chance * torch.randn(len(weight), 1, generator=generator).exp()
        chance = chance * torch.randn(1, weight.shape[1], generator=generator).exp()
    kept = torch.rand(weight.shape, generator=generator) < chance.reshape(*weight.shape[:2], *[1] * (weight.ndim - 2))
    values = torch.randn(weight.shape, generator=generator) / (weight[0].numel() * density) ** 0.5
    return torch.where(kept, values, 0.0)


@cache
def _traced(name: str) -> Graph:
    return trace(models.build(name, shape=SHAPES[name], classes=4, options=OPTIONS[name]), SHAPES[name])


def graph_of(name: str, model: nn.Module) -> Graph:
    """The graph of one of these models; it is traced once, which takes longer than what is tested."""
    return filled(_traced(name), model)


def filled(graph: Graph, model: nn.Module) -> Graph:
    """A graph of another model of the same class with the tensors of this one."""
    state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    return replace(graph, tensors={**graph.tensors, **state})


def outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(inputs)
    return result


def difference(model: nn.Module, other: nn.Module, inputs: Tensor) -> float:
    """The largest difference of an output, relative to the largest output."""
    expected, came = outputs(model, inputs), outputs(other, inputs)
    return float((expected - came).abs().max() / expected.abs().max().clamp(min=1e-9))

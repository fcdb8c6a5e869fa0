"""What inference is measured on: networks with masks from training where there are files of them, else made-up ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hypersparse import models
from hypersparse.errors import OptionError
from hypersparse.export.compressed import load_graph
from hypersparse.export.graph_module import to_module
from hypersparse.export.trace import trace
from hypersparse.sparsity.distributions import PAPER_SPARSITIES, keep_count
from hypersparse_runtime.graph import Graph

SHAPE, CLASSES = (3, 32, 32), 10
MODELS = ("resnet32", "vgg19")
SPARSITIES = (0.0, 0.5, 0.8, *PAPER_SPARSITIES)
QUICK_SPARSITIES = (0.98, 0.998)
TRAINED, MADE_UP = "trained", "synthetic"
FEWEST = 64  # weights of a layer in a made-up mask: an empty layer would cut the network in two
ALMOST_EMPTY, SHARE = 10, 0.02  # layers after the tenth get this share of what their size would give them


@dataclass(frozen=True, eq=False)
class Subject:
    """A network to measure, in two forms."""

    model: str
    sparsity: float
    mask: str  # where it comes from: `trained`, or a word on what is made up
    graph: Graph
    module: nn.Module


def subject(model: str, sparsity: float, masks: Path | None) -> Subject:
    """The network of that name and sparsity, from a file in the folder of masks or made up."""
    file = None if masks is None else masks / f"{model}-{sparsity:g}.hsp"
    if file is not None and file.exists():
        graph = load_graph(file)
        known, mask = to_module(graph), str(graph.about.get("mask", "unknown"))
        if mask != TRAINED:
            redraw_(known)
            graph = trace(known.eval(), SHAPE, graph.about)
        return Subject(model, sparsity, mask, graph, known)
    torch.manual_seed(0)
    module = models.build(model, shape=SHAPE, classes=CLASSES, own_code=[model])
    randomize_norms_(module, torch.default_generator)
    if sparsity:
        clustered_(module, sparsity)
    return Subject(model, sparsity, MADE_UP if sparsity else "dense", trace(module.eval(), SHAPE), module)


def parse_sparsities(text: str) -> list[float]:
    """Numbers between commas.

    >>> parse_sparsities("0.98,0.998")
    [0.98, 0.998]
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [-1.0]
    if any(not 0 <= each < 1 for each in found):
        raise OptionError(f"`--sparsity` are fractions from 0 to below 1 between commas, as 0.98,0.998; got `{text}`.")
    return found


def redraw_(module: nn.Module) -> None:
    """Random weights and batch norms where a file has but a mask; weights are as large as those in it on average."""
    draw = torch.Generator().manual_seed(0)
    randomize_norms_(module, draw)
    with torch.no_grad():
        for each in module.modules():
            if isinstance(each, nn.Conv2d | nn.Linear):
                each.weight *= torch.randn(each.weight.shape, generator=draw)


def randomize_norms_(module: nn.Module, draw: torch.Generator) -> None:
    """Batch norms that do something, as after training."""
    with torch.no_grad():
        for each in module.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.bias.normal_(0, 0.2, generator=draw)
                each.weight.uniform_(0.5, 1.5, generator=draw)


def clustered_(module: nn.Module, sparsity: float) -> None:
    """Zero weights as a trained mask might: most are kept in front, and channels are important or not.

    Layers are kept by 1 / sqrt(fan-in), those after the tenth almost not. Within a layer the largest of importance of
    the output channel, times that of the input channel, times chance are kept; importances are log-normal, and a layer
    reads with those that the layer before it writes with.
    """
    layers = [each for each in module.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    rng = np.random.default_rng(0)
    importance = rng.lognormal(size=max(each.weight.shape[0] for each in layers))
    incoming = np.ones(SHAPE[0])
    budgets = front_loaded([tuple(each.weight.shape) for each in layers], sparsity)
    for layer, budget in zip(layers, budgets, strict=True):
        shape = tuple(layer.weight.shape)
        outgoing = importance[: shape[0]] if isinstance(layer, nn.Conv2d) else np.ones(shape[0])
        reads = incoming[: shape[1]] if len(incoming) >= shape[1] else importance[: shape[1]]
        score = rng.lognormal(size=shape) * outgoing.reshape(-1, *[1] * (len(shape) - 1))
        score *= reads.reshape(1, -1, *[1] * (len(shape) - 2))
        kept = np.argpartition(-score.ravel(), budget - 1)[:budget]
        mask = np.zeros(prod(shape), dtype=np.float32)
        mask[kept] = 1
        with torch.no_grad():
            layer.weight *= torch.from_numpy(mask.reshape(shape))
            layer.weight *= (prod(shape) / budget) ** 0.5  # signals neither fade nor grow
        incoming = outgoing


def front_loaded(shapes: Sequence[tuple[int, ...]], sparsity: float) -> list[int]:
    """How many weights each layer keeps."""
    sizes: NDArray[np.float64] = np.array([prod(shape) for shape in shapes], dtype=np.float64)
    scale = np.array([prod(shape[1:]) ** -0.5 for shape in shapes])
    scale[np.arange(len(shapes)) > ALMOST_EMPTY] *= SHARE
    scale[-1] = scale.max()
    keep = keep_count(int(sizes.sum()), sparsity)
    low, high = 0.0, 1e9
    for _ in range(200):  # the factor at which the sum is right, layers being full at most
        middle = (low + high) / 2
        counts = np.clip(sizes * scale * middle, np.minimum(FEWEST, sizes), sizes)
        low, high = (low, middle) if counts.sum() > keep else (middle, high)
    return [int(count) for count in counts]

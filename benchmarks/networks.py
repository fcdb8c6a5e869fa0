"""Networks for the inference benchmark, with masks from training where a file exists, else with synthetic masks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks import token_networks
from benchmarks.token_networks import TOKEN_MODELS, draw_inputs, is_bert, shape_of
from hypersparse import models
from hypersparse.export.graph_module import to_module
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_graph
from hypersparse.export.trace import trace
from hypersparse.sparsity.distributions import keep_count
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.graph import Graph
from hypersparse_runtime.lowering import dense_products, layers_of

SHAPE, CLASSES = (3, 32, 32), 10
MODELS = ("resnet32", "vgg19")
SPARSITIES = (0.0, 0.9, 0.98, 0.998)
QUICK_SPARSITIES = (0.98, 0.998)
TRAINED, SYNTHETIC, RANDOM = "trained", "synthetic", "random"
WORTH_SHRINKING = 0.98  # of the products, at most
MIN_KEPT = 64  # weights per layer in a synthetic mask: an empty layer would disconnect the network
LAST_DENSER_LAYER, LATE_LAYER_FACTOR = 10, 0.02  # later layers have their density scaled by this factor


@dataclass(frozen=True, eq=False)
class BenchmarkNetwork:
    """A network to measure, as a graph and as a module."""

    model: str
    sparsity: float
    mask: str  # its origin: `trained`, or what is synthetic
    graph: Graph
    module: nn.Module
    tokens: bool = False  # whether it takes token numbers

    @cached_property
    def shrunk(self) -> Graph:
        """The graph without its dead channels: itself if that saves hardly any products."""
        made = shrink_graph(self.graph).graph
        return made if dense_products(made) < WORTH_SHRINKING * self.dense_products else self.graph

    @cached_property
    def dense_products(self) -> int:
        """Multiplications per input of a dense engine."""
        return dense_products(self.graph)

    @cached_property
    def sparse_products(self) -> int:
        """Multiplications per input with the weights that are not zero."""
        return without_dead_channels(layers_of(self.graph)).products()

    def inputs(self, count: int) -> NDArray[np.float32]:
        """Random inputs, the same ones at each call."""
        if self.model in TOKEN_MODELS:
            return draw_inputs(self.model, count)
        return np.random.default_rng(0).normal(size=(count, *SHAPE)).astype(np.float32)


def load_or_generate(model: str, sparsity: float, masks: Path) -> BenchmarkNetwork:
    """The network of this name and sparsity, from a file in the folder of masks or with a synthetic mask."""
    if model in TOKEN_MODELS:
        module, dtype = token_networks.build(model, sparsity), torch.int64 if is_bert(model) else None
        graph = trace(module, shape_of(model), input_dtype=dtype)
        return BenchmarkNetwork(model, sparsity, RANDOM if sparsity else "dense", graph, module, is_bert(model))
    file = masks / f"{model}-{sparsity:g}.hsp"
    if file.exists():
        graph = load_graph(file)
        loaded, mask = to_module(graph), str(graph.about.get("mask", "unknown"))
        if mask != TRAINED:
            randomize_weights_(loaded)
            graph = trace(loaded.eval(), SHAPE, graph.about)
        return BenchmarkNetwork(model, sparsity, mask, graph, loaded)
    torch.manual_seed(0)
    module = models.build(model, shape=SHAPE, classes=CLASSES, own_code=[model])
    randomize_norms_(module, torch.default_generator)
    if sparsity:
        prune_clustered_(module, sparsity)
    mask = SYNTHETIC if sparsity else "dense"
    return BenchmarkNetwork(model, sparsity, mask, trace(module.eval(), SHAPE), module)


def randomize_weights_(module: nn.Module) -> None:
    """Draw weights and batch norms for a file that stores only a mask; each weight keeps its mean magnitude."""
    draw = torch.Generator().manual_seed(0)
    randomize_norms_(module, draw)
    with torch.no_grad():
        for each in module.modules():
            if isinstance(each, nn.Conv2d | nn.Linear):
                each.weight *= torch.randn(each.weight.shape, generator=draw)


def randomize_norms_(module: nn.Module, draw: torch.Generator) -> None:
    """Draw batch norms that are not the identity, as after training."""
    with torch.no_grad():
        for each in module.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.bias.normal_(0, 0.2, generator=draw)
                each.weight.uniform_(0.5, 1.5, generator=draw)


def prune_clustered_(module: nn.Module, sparsity: float) -> None:
    """Prune with a synthetic mask that imitates trained ones: dense front layers, and important channels.

    The density of a layer is proportional to 1 / sqrt(fan-in), and much smaller after the tenth layer. The score of a
    weight is the importance of its output channel, times that of its input channel, times a random factor. All three
    are log-normal. A layer's input channels have the importance they had as outputs of the layer before.
    """
    layers = [each for each in module.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    rng = np.random.default_rng(0)
    importance = rng.lognormal(size=max(each.weight.shape[0] for each in layers))
    incoming = np.ones(SHAPE[0])
    kept_counts = front_loaded_counts([tuple(each.weight.shape) for each in layers], sparsity)
    for layer, keep in zip(layers, kept_counts, strict=True):
        shape = tuple(layer.weight.shape)
        outgoing = importance[: shape[0]] if isinstance(layer, nn.Conv2d) else np.ones(shape[0])
        reads = incoming[: shape[1]] if len(incoming) >= shape[1] else importance[: shape[1]]
        score = rng.lognormal(size=shape) * outgoing.reshape(-1, *[1] * (len(shape) - 1))
        score *= reads.reshape(1, -1, *[1] * (len(shape) - 2))
        kept = np.argpartition(-score.ravel(), keep - 1)[:keep]
        mask = np.zeros(prod(shape), dtype=np.float32)
        mask[kept] = 1
        with torch.no_grad():
            layer.weight *= torch.from_numpy(mask.reshape(shape))
            layer.weight *= (prod(shape) / keep) ** 0.5  # preserves the scale of activations
        incoming = outgoing


def front_loaded_counts(shapes: Sequence[tuple[int, ...]], sparsity: float) -> list[int]:
    """The number of weights each layer keeps."""
    sizes: NDArray[np.float64] = np.array([prod(shape) for shape in shapes], dtype=np.float64)
    scale = np.array([prod(shape[1:]) ** -0.5 for shape in shapes])
    scale[np.arange(len(shapes)) > LAST_DENSER_LAYER] *= LATE_LAYER_FACTOR
    scale[-1] = scale.max()
    keep = keep_count(int(sizes.sum()), sparsity)
    low, high = 0.0, 1e9
    for _ in range(200):  # bisect for the factor that gives the total; a layer is dense at most
        middle = (low + high) / 2
        counts = np.clip(sizes * scale * middle, np.minimum(MIN_KEPT, sizes), sizes)
        low, high = (low, middle) if counts.sum() > keep else (middle, high)
    return [int(count) for count in counts]

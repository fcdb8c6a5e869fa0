"""`calibrate`: how large the values of a network become, which sets the scales of their integers."""

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from hypersparse.data.dataset import Dataset
from hypersparse.errors import ModelError
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse.export.verify import BATCH, spread
from hypersparse.training.loaders import EvalLoader
from hypersparse_runtime.graph import INPUT, Graph

IMAGES = 512
SHARE = 0.9999  # ResNet-32 at 99.8 % on 1,000 images of CIFAR-10: 84.2 % with it, 83.1 % with 1, 83.5 % with 0.999


def training_images(dataset: Dataset, count: int = IMAGES) -> Iterator[Tensor]:
    """Batches of training images at even distances, as a network is given them."""
    places = spread(len(dataset.train), min(count, len(dataset.train)))
    batches = EvalLoader(dataset.train[places], dataset, torch.device("cpu"))
    batches.batch_size = BATCH
    for images, _ in batches:
        yield images


def calibrate(graph: Graph, batches: Iterable[Tensor], *, share: float = 1.0) -> dict[str, float]:
    """The magnitude that this share of each value's numbers does not exceed: of several batches, the largest."""
    tensors = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in graph.tensors.items()}
    found: dict[str, float] = {}
    with torch.no_grad():
        for inputs in batches:
            for name, value in _values(graph, tensors, inputs):
                found[name] = max(found.get(name, 0.0), _quantile(value, share))
    if not found or not all(isfinite(most) for most in found.values()):
        raise ModelError("Calibration needs images for which the network's values are finite; pass other images.")
    return found


def _values(graph: Graph, tensors: Mapping[str, Tensor], inputs: Tensor) -> Iterator[tuple[str, Tensor]]:
    last = {name: place for place, node in enumerate(graph.nodes) for name in node.inputs}
    values = {INPUT: inputs}
    yield INPUT, inputs
    for place, node in enumerate(graph.nodes):
        operation = TORCH_OPERATIONS.get(node.op)
        if operation is None:
            raise ModelError(f"Calibration does not know the operation `{node.op}`.")
        own = {role: tensors[name] for role, name in node.tensors.items()}
        values[node.output] = operation.compute(node, [values[name] for name in node.inputs], own)
        yield node.output, values[node.output]
        for name in node.inputs:
            if last[name] == place:
                values.pop(name, None)


def _quantile(value: Tensor, share: float) -> float:
    """Of the magnitudes.

    >>> _quantile(torch.tensor([1.0, -8.0, 2.0, 4.0]), 0.75)
    4.0
    """
    magnitudes = value.abs().flatten()
    place = max(round(share * magnitudes.numel()), 1)
    return float(magnitudes.max() if place == magnitudes.numel() else magnitudes.kthvalue(place).values)

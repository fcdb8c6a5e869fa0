"""Accuracy and loss of a network on images in file order."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.distributed import Ranks
from hypersparse.methods.task import RunningMean, accuracy
from hypersparse.plurals import how_many
from hypersparse.sparsity.eval_mode import eval_mode
from hypersparse.sparsity.scores import Run, call_model


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy, mean cross-entropy, and which images were classified correctly (on the device)."""

    accuracy: float
    loss: float
    hits: Tensor  # bool, one for each image, in their order


def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    run: Run = call_model,
    *,
    ranks: Ranks | None = None,
) -> Evaluation:
    """Evaluate `model` in evaluation mode with `run`; its modes are restored.

    Of several `ranks` each has its own batches, and all return the same evaluation.
    """
    device = next(model.parameters()).device
    hits, losses = RunningMean(device), RunningMean(device)
    each = []
    with torch.no_grad(), eval_mode(model):
        for images, labels in batches:
            outputs = run(model, images).float()
            right = accuracy(outputs, labels)
            hits.add(right, len(labels))
            each.append(right.bool())
            losses.add(functional.cross_entropy(outputs, labels), len(labels))
    ranks = ranks or Ranks.alone()
    hits.sum_over_(ranks)
    losses.sum_over_(ranks)
    if not isfinite(loss := losses.value()):
        warnings.warn(
            f"The loss on {how_many(hits.count, 'image')} outside the training set is {loss}. Images with an output of "
            "NaN count as wrong. Try a lower learning rate, or --precision fp32.",
            stacklevel=2,
        )
    return Evaluation(hits.value(), loss, ranks.concatenate(torch.cat(each)))

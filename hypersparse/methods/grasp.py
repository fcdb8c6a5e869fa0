"""GraSP: keep what preserves the flow of gradients (Wang, Zhang, Grosse 2020)."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hypersparse.errors import OptionError
from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, TrainingState
from hypersparse.methods.one_shot import check_count, prune_first
from hypersparse.methods.scoring_data import ScoringSamples
from hypersparse.methods.task import Task
from hypersparse.options import option, options
from hypersparse.sparsity import scores
from hypersparse.sparsity.distributions import Distribution
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import Batch
from hypersparse.sparsity.weights import PrunableWeights


@options
class GraSP(PruningMethod, ScoringSamples):
    """Keep the weights whose removal would reduce the gradient's norm most; before training."""

    name: ClassVar[str] = "grasp"
    citation: ClassVar[str] = (
        "C. Wang, G. Zhang, R. Grosse: Picking Winning Tickets Before Training by Preserving Gradient Flow. ICLR 2020."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    temperature: float = option(default=200.0, help="The network's outputs are divided by it for the score.", gt=0)
    halves: Literal["sorted", "balanced"] = option(
        default="sorted",
        help="The two halves of a pass: the first classes and the others, as in the authors' code, or all in both.",
    )
    redraw_linear: bool = option(
        default=True, help="Score with newly drawn linear layers, as the authors' code; they are trained as they were."
    )
    tie_rule: Literal["exact", "authors"] = option(
        default="exact",
        help="Keep exactly total - floor(sparsity * total), or one more and all equal to it (`authors`, for "
        "distribution=global).",
    )

    def __post_init__(self) -> None:
        check_count(self.tie_rule, self.distribution)
        if self.halves == "balanced" and self.data == "per_class" and self.per_class == 1:
            raise OptionError(
                "GraSP(halves='balanced') has samples of every class in both halves of a pass and needs two of each; "
                "`per_class` is 1. Pass per_class=2 and half as many `passes`, or halves='sorted'."
            )

    def plan(self, epochs: int) -> Sequence[Phase]:
        return prune_first(self.mask, epochs=epochs, needs_task=True)

    def mask(self, state: TrainingState) -> Mask:
        """The mask, chosen before training."""
        weights, task = state.weights, state.task
        values = redrawn(weights, state.generator) if self.redraw_linear else weights
        halves = self.split(task, weights.device)
        found = scores.grasp(
            weights.model,
            values,
            halves,
            task.criterion,
            temperature=self.temperature,
            run=task.forward,
            ranks=task.ranks,
        )
        if self.tie_rule == "authors":
            return weights.select(found, min(self.keep(weights) + 1, weights.total), rule=Mask.at_least)
        return weights.select(found, self.keep(weights), self.distribution)

    def split(self, task: Task, device: torch.device) -> list[Batch]:
        """Two halves of every pass; batch norm sees one at a time."""
        pairs = []
        for inputs, labels in self.batches(task, device):
            if not (isinstance(inputs, Tensor) and len(inputs) > 1):
                raise OptionError(
                    "GraSP cuts the samples it scores with in two: they are a tensor of two or more, [N, ...]; got "
                    f"{len(inputs) if isinstance(inputs, Tensor) else type(inputs).__name__}."
                )
            middle = len(labels) // 2
            first, second = (slice(middle), slice(middle, None))
            if self.halves == "balanced":  # samples of a class stand beside each other
                first, second = (slice(0, None, 2), slice(1, None, 2))
            pairs += [(inputs[part], labels[part]) for part in (first, second)]
        return pairs


def redrawn(weights: PrunableWeights, generator: torch.Generator) -> dict[str, Tensor]:
    """The weights, with newly drawn linear layers (Xavier normal); the model does not change."""
    linear = {id(module.weight) for module in weights.model.modules() if isinstance(module, nn.Linear)}
    values: dict[str, Tensor] = {}
    for name, weight in weights.items():
        values[name] = weight.detach()
        if id(weight) in linear:
            drawn = nn.init.xavier_normal_(torch.empty(weight.shape), generator=generator)
            values[name] = drawn.to(weight.device, weight.dtype)
    return values

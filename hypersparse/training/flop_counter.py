"""`FlopCounter`: the floating-point operations of a run, counted epoch by epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hypersparse.sparsifier import Sparsifier
from hypersparse.sparsity.flops import FORWARD_AND_BACKWARD, ForwardCost
from hypersparse.sparsity.scores import Run
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.schemas import Entry, number_of

NAMES = ("flops", "flops_sparse", "scoring_flops", "scoring_flops_sparse")  # of an epoch, in its line of the log


class FlopCounter:
    """Counts the operations of an epoch's steps, and those of the method to score networks.

    `flops` is the count of dense arithmetic and `flops_sparse` that of nonzero weights. Nothing is counted for a
    network with an unknown cost (None). Evaluations for the log are not counted.
    """

    def __init__(self, cost: ForwardCost | None, weights: PrunableWeights, run: Run) -> None:
        self.cost = cost
        self.scoring = {"scoring_flops": 0.0, "scoring_flops_sparse": 0.0}  # since the last epoch's end
        self._weights, self._run = weights, run

    def on_scores(self, scores: Tensor) -> None:
        """Receive per-sample scores that the method asked for, while the network is still as it was scored."""
        self._add(len(scores), self._nonzero())

    def run(self, model: nn.Module, inputs: Any) -> Any:
        """The outputs of a network. Passes with gradients are counted here, forward and backward."""
        if torch.is_grad_enabled():
            mask = self._weights.mask
            self._add(FORWARD_AND_BACKWARD * len(inputs), None if mask is None else mask.kept_by_layer())
        elif model.training:  # for the statistics of its batch norms
            self._add(len(inputs), self._nonzero())
        return self._run(model, inputs)

    def epoch(self, sparsifier: Sparsifier, *, images: int, steps: int) -> dict[str, float]:
        """The operations of the steps of the ending epoch, with the current mask."""
        if self.cost is None:
            return {}
        mask, trainable = sparsifier.mask, sparsifier.trainable
        dense = self.cost.flops()
        sparse = dense if mask is None else self.cost.flops(mask.kept_by_layer())
        if sparsifier.phase.rules.trainable is None or trainable is None:
            # A step in which the method moves weights has the gradients of all weights, also of the dropped ones.
            more = _acting_steps(sparsifier, steps) / steps * (dense - sparse)
        else:
            more = self.cost.flops(trainable.kept_by_layer()) - sparse  # the gradients of those that learn unused
        extra, extra_sparse = self._extra(sparsifier.extra_loss)
        return {
            "flops": images * (FORWARD_AND_BACKWARD * dense + extra),
            "flops_sparse": images * (FORWARD_AND_BACKWARD * sparse + more + extra_sparse),
        }

    def _extra(self, term: nn.Module | None) -> tuple[float, float]:
        """What the term that a phase adds to the loss computes for one image: a teacher's forward pass."""
        if self.cost is None or term is None:
            return 0.0, 0.0
        # The teacher of a run is a network like its own.
        counts = {name: int(term.get_parameter(f"teacher.{name}").count_nonzero()) for name in self._weights}
        return self.cost.flops(), self.cost.flops(counts)

    def scoring_of_epoch(self) -> dict[str, float]:
        """The scoring operations since the last epoch's end; resets the count."""
        found = self.scoring
        self.scoring = dict.fromkeys(found, 0.0)
        return {} if self.cost is None else found

    def _nonzero(self) -> dict[str, int]:
        counts = torch.stack([weight.count_nonzero() for weight in self._weights.values()]).tolist()
        return dict(zip(self._weights, counts, strict=True))

    def _add(self, passes: float, kept: dict[str, int] | None) -> None:
        if self.cost is not None:
            self.scoring["scoring_flops"] += passes * self.cost.flops()
            self.scoring["scoring_flops_sparse"] += passes * self.cost.flops(kept)


def _acting_steps(sparsifier: Sparsifier, steps: int) -> int:
    on_step, done = sparsifier.phase.on_step, sparsifier.state.step
    return 0 if on_step is None else done // on_step.every - (done - steps) // on_step.every


def total_cost(entries: Sequence[Entry]) -> dict[str, float | None]:
    """The operations of all epochs with scoring; None if one of them is unknown."""
    said = {name: [number_of(entry, name) for entry in entries] for name in NAMES}
    known = all(None not in numbers for numbers in said.values())
    sums = {name: sum(filter(None, numbers)) if known else None for name, numbers in said.items()}
    return {
        "training_flops": _both(sums["flops"], sums["scoring_flops"]),
        "training_flops_sparse": _both(sums["flops_sparse"], sums["scoring_flops_sparse"]),
        "scoring_flops": sums["scoring_flops"],
    }


def inference_cost(cost: ForwardCost | None, kept: Mapping[str, int]) -> dict[str, float | None]:
    """The operations per image of the finished network, dense and without zeros; None if unknown."""
    return {
        "inference_flops": None if cost is None else cost.flops(),
        "inference_flops_sparse": None if cost is None else cost.flops(kept),
    }


def _both(steps: float | None, scoring: float | None) -> float | None:
    return None if steps is None or scoring is None else steps + scoring

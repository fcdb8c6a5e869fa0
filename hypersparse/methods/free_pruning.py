"""The family of methods that press weights ever harder, and look after every epoch whether pruning is free by now."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from statistics import mean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from hypersparse.errors import OptionError
from hypersparse.methods.base import Method, Sparsity, TrainingState
from hypersparse.methods.snapshot import restore_, snapshot
from hypersparse.options import option, options
from hypersparse.sparsity.batch_norm import recompute_statistics
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights

AVERAGED_EPOCHS = 3  # the pruned score is averaged over the epochs e-1, e, e+1 (supplement A)
STEPS = "regularized_steps"  # under this name in the state's memory: how many there were, with `growth_steps`


@options
class FreePruning(Method):
    """Look after every epoch whether pruning is free, remember the best pruned copy, and go on with that one."""

    forgets: ClassVar[tuple[str, ...]] = ()  # what else a method remembers until it prunes

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")
    strength: float = option(default=5e-6, help="Factor on the penalty in the first regularized epoch.", gt=0)
    growth: float = option(default=1.05, help="Factor on the strength per regularized epoch.", ge=1)
    growth_steps: int = option(
        default=0, help="The strength grows in every step, by `growth` over this many; 0: only with an epoch.", ge=0
    )
    regularized_lr: float = option(default=1.0, help="Factor on the learning rate of the regularized phase.", gt=0)
    max_regularized_epochs: int = option(default=300, help="Prune at the latest after this many.", ge=1)
    stop_reference: Literal["auto", "code", "paper"] = option(
        default="auto",
        help="What the pruned score is compared with: `code` the score seen while training the epoch (needs "
        "observe()), `paper` the dense network scored like the pruned one, `auto` code where there is one.",
    )
    best_by: Literal["single", "mean"] = option(
        default="single",
        help="A new best has an average over three epochs above the old best's own score (`single`, as the "
        "authors' code) or above the old best's average (`mean`, as the paper says).",
    )
    tie_rule: Literal["exact", "authors"] = option(
        default="exact",
        help="Keep exactly total - floor(sparsity * total), or what is strictly above that last weight (`authors`).",
    )
    reestimate: int = option(
        default=0,
        help="Training batches on which the pruned copy's statistics of batch norm are taken anew before it is scored "
        "and kept; 0 leaves it those of the dense network.",
        ge=0,
    )

    def strength_now(self, state: TrainingState) -> Tensor:
        """The factor on the penalty in this step, as a tensor that a captured step reads."""
        if not self.growth_steps:
            return self.strength * self.growth**state.epoch_tensor
        steps: Tensor = state.memory[STEPS].to(state.weights.device)  # a checkpoint's is on the CPU
        state.memory[STEPS] = steps
        return self.strength * self.growth ** (steps / self.growth_steps)

    def begin_to_count(self, state: TrainingState) -> None:
        """On entering the regularized phase: not in its first step, which may be rehearsed."""
        state.memory[STEPS] = torch.zeros((), device=state.weights.device)

    def count_step(self, state: TrainingState) -> None:
        """After a regularized step; in place, since a captured step knows the address."""
        state.memory[STEPS].add_(1)

    def check_count(self, weights: PrunableWeights) -> None:
        """Say at once if the authors' rule, which drops the last weight too, would leave none."""
        if self.tie_rule == "authors" and keep_count(weights.total, self.sparsity) == 1:
            raise OptionError(
                f"{type(self).__name__}(tie_rule='authors') leaves none of {weights.total} weights at sparsity "
                f"{self.sparsity:g}; pass tie_rule='exact' or a lower sparsity."
            )

    def mask(self, weights: PrunableWeights) -> Mask:
        """Which weights magnitude pruning would keep now."""
        keep = keep_count(weights.total, self.sparsity)
        rule = Mask.top if self.tie_rule == "exact" else Mask.strictly_above
        return rule(magnitude(weights), keep)

    def pruning_is_free(self, state: TrainingState) -> bool:
        """After an epoch: score the pruned copy, remember the best; is it as good as the dense network?"""
        mask = self.mask(state.weights)
        with state.weights.masked_by(mask), self.own_statistics(state):
            pruned = state.task.score(state.model)
            copy = snapshot(state.weights, mask)
        dense = self.dense_score(state)
        best = self.remember(state, pruned, copy)
        state.log |= {
            "strength": self._logged_strength(state),
            "w_kappa": _smallest_kept(state.weights, mask),
            "dense_score": dense,
            "pruned_score": pruned,
            "best_score": best["mean"],
            "best_epoch": best["epoch"],
            "kept_by_layer": list(mask.kept_by_layer().values()),
        }
        # Deviation: the authors' code asks for strictly better, and never stops when both are perfect.
        free = bool(best["mean"] >= dense)
        state.memory["free"] = free
        return free

    def own_statistics(self, state: TrainingState) -> AbstractContextManager[None]:
        """Inside the block the network has statistics of batch norm as it is, if that is asked for."""
        if not self.reestimate:
            return nullcontext()
        return recompute_statistics(state.model, lambda: state.task.pass_over(state.model, self.reestimate))

    def dense_score(self, state: TrainingState) -> float:
        """The score that pruning must not lower."""
        if self.stop_reference == "paper" or state.observed.count == 0:
            return state.task.score(state.model)
        return state.observed.value()

    def remember(self, state: TrainingState, pruned: float, copy: dict[str, Any]) -> dict[str, Any]:
        """Keep the best pruned copy: the middle one of three epochs with the best average."""
        memory = state.memory
        recent = [*memory.get("recent", []), pruned][-AVERAGED_EPOCHS:]
        average = mean(recent)
        best: dict[str, Any] | None = memory.get("best")
        if best is None or average > best[self.best_by]:
            middle = len(recent) == AVERAGED_EPOCHS
            memory["best"] = best = {
                "single": recent[1] if middle else pruned,
                "mean": average,
                "epoch": state.epoch - 1 if middle else state.epoch,
                "copy": memory["previous"] if middle else copy,
            }
        memory |= {"recent": recent, "previous": copy}
        return best

    def prune(self, state: TrainingState) -> None:
        """Leave the regularized phase: the network becomes its best pruned copy, and the mask holds."""
        best = state.memory["best"]
        if not state.memory["free"]:
            warnings.warn(
                f"Pruning still cost accuracy after {self.max_regularized_epochs} regularized epochs; the best "
                f"pruned network (epoch {best['epoch']}, score {best['mean']:.4g}) is fine-tuned. "
                "Raise max_regularized_epochs, strength or growth.",
                stacklevel=2,
            )
        restore_(state.weights, best["copy"])
        state.memory["pruned_at"] = best["epoch"]
        for key in ("best", "previous", "recent", "free", STEPS, *self.forgets):
            state.memory.pop(key, None)

    def _logged_strength(self, state: TrainingState) -> float:
        return float(self.strength_now(state)) if self.growth_steps else self.strength * self.growth**state.epoch


def _smallest_kept(weights: PrunableWeights, mask: Mask) -> float:
    smallest = [weight.detach().abs().masked_fill(~mask[name], torch.inf).min() for name, weight in weights.items()]
    return float(torch.stack(smallest).min())

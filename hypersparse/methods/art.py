"""ART: adaptive regularized training (Glandorf, Kaiser, Rosenhahn 2023, section 3, algorithm 1)."""

import warnings
from collections.abc import Sequence
from statistics import mean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from hypersparse.errors import OptionError
from hypersparse.methods.base import Method, Phase, Sparsity, TrainingState
from hypersparse.methods.snapshot import restore_, snapshot
from hypersparse.options import option, options
from hypersparse.sparsity import penalties
from hypersparse.sparsity.budgets import keep_count
from hypersparse.sparsity.mask import Mask, kth_largest
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights

LOOKED = "w_kappa"  # under this name in the state's memory: the last look at the smallest weight that stays
AVERAGED_EPOCHS = 3  # the pruned score is averaged over the epochs e-1, e, e+1 (supplement A)


@options
class ART(Method):
    """Press weights towards zero until pruning costs nothing, then prune and fine-tune."""

    name: ClassVar[str] = "art"
    citation: ClassVar[str] = (
        "P. Glandorf, T. Kaiser, B. Rosenhahn: HyperSparse Neural Networks: Shifting Exploration to "
        "Exploitation through Adaptive Regularization. ICCV Workshops 2023."
    )

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")
    penalty: Literal["hypersparse", "l1", "l2"] = option(
        default="hypersparse", help="What presses weights towards zero."
    )
    pretrain_epochs: int = option(default=60, help="Dense epochs before the penalty; 0 begins with the penalty.", ge=0)
    strength: float = option(default=5e-6, help="Factor on the penalty in the first regularized epoch.", gt=0)
    growth: float = option(default=1.05, help="Factor on the strength per regularized epoch.", ge=1)
    max_regularized_epochs: int = option(default=300, help="Prune at the latest after this many.", ge=1)
    stop: Literal["auto", "code", "paper"] = option(
        default="auto",
        help="What the pruned score is compared with: `code` the score seen while training the epoch (needs "
        "observe()), `paper` the dense network scored like the pruned one, `auto` code where there is one.",
    )
    select: Literal["single", "mean"] = option(
        default="single",
        help="A new best has an average over three epochs above the old best's own score (`single`, as the "
        "authors' code) or above the old best's average (`mean`, as the paper says).",
    )
    count: Literal["exact", "authors"] = option(
        default="exact",
        help="Keep exactly total - floor(sparsity * total), or what is strictly above that last weight (`authors`).",
    )
    refresh_every: int = option(
        default=1,
        help="For penalty=hypersparse: steps between two looks at the smallest weight that stays, from which the "
        "penalty has its shape.",
        ge=1,
    )

    def __post_init__(self) -> None:
        if self.refresh_every > 1 and self.penalty != "hypersparse":
            raise OptionError(f"`refresh_every` belongs to the penalty `hypersparse`; this one is `{self.penalty}`.")

    def label(self) -> str:
        return f"art-{self.penalty}-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        length = self.pretrain_epochs
        pretrain = Phase("pre-train", epochs=length, hold_lr=True, pretraining=True, shared=f"dense, {length} epochs")
        look = self.look_at_w_kappa if self.refresh_every > 1 else None  # otherwise the penalty itself looks
        return [
            *([pretrain] if length else []),
            Phase(
                "regularize",
                epochs=self.max_regularized_epochs,
                enter=look,
                adjust=look,
                adjust_every=self.refresh_every,
                penalty=self.weighted_penalty,
                until=self.pruning_is_free,
                leave=self.prune,
                hold_lr=True,
                check=self.check_count,
                needs_task=True,
                needs_observe=self.stop == "code",
            ),
            Phase("fine-tune", epochs=epochs, restart=True),
        ]

    def weighted_penalty(self, state: TrainingState) -> Tensor:
        """The penalty times its strength in this epoch (eq. 1)."""
        vector = state.weights.vector()
        if self.refresh_every > 1:
            smallest = state.memory[LOOKED] = state.memory[LOOKED].to(vector.device)  # a checkpoint's is on the CPU
            bare = penalties.hypersparse_around(vector, smallest)
        else:
            bare = self.bare_penalty(vector)
        return self.strength * self.growth**state.epoch_tensor * bare

    def look_at_w_kappa(self, state: TrainingState) -> None:
        """Find the smallest weight that stays, for the steps until the next look."""
        vector = state.weights.vector().detach()
        found = kth_largest(vector.abs(), keep_count(vector.numel(), self.sparsity))
        # In place: a captured step knows the address.
        state.memory[LOOKED] = state.memory[LOOKED].copy_(found) if LOOKED in state.memory else found

    def bare_penalty(self, vector: Tensor) -> Tensor:
        """The penalty of a vector of all weights, without a strength."""
        if self.penalty == "hypersparse":
            return penalties.hypersparse(vector, keep_count(vector.numel(), self.sparsity))
        return (penalties.l1 if self.penalty == "l1" else penalties.l2)(vector)

    def check_count(self, weights: PrunableWeights) -> None:
        """Say at once if the authors' rule, which drops the last weight too, would leave none."""
        if self.count == "authors" and keep_count(weights.total, self.sparsity) == 1:
            raise OptionError(
                f"ART(count='authors') leaves none of {weights.total} weights at sparsity {self.sparsity:g}; "
                "pass count='exact' or a lower sparsity."
            )

    def mask(self, weights: PrunableWeights) -> Mask:
        """Which weights magnitude pruning would keep now."""
        keep = keep_count(weights.total, self.sparsity)
        rule = Mask.top if self.count == "exact" else Mask.strictly_above
        return rule(magnitude(weights), keep)

    def pruning_is_free(self, state: TrainingState) -> bool:
        """After an epoch: score the pruned copy, remember the best; is it as good as the dense network?"""
        mask = self.mask(state.weights)
        with state.weights.masked_by(mask):
            pruned = state.task.score(state.model)
            copy = snapshot(state.weights, mask)
        dense = self.dense_score(state)
        best = self.remember(state, pruned, copy)
        state.log |= {
            "strength": self.strength * self.growth**state.epoch,
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

    def dense_score(self, state: TrainingState) -> float:
        """The score that pruning must not lower."""
        if self.stop == "paper" or state.observed.count == 0:
            return state.task.score(state.model)
        return state.observed.value()

    def remember(self, state: TrainingState, pruned: float, copy: dict[str, Any]) -> dict[str, Any]:
        """Keep the best pruned copy: the middle one of three epochs with the best average."""
        memory = state.memory
        recent = [*memory.get("recent", []), pruned][-AVERAGED_EPOCHS:]
        average = mean(recent)
        best: dict[str, Any] | None = memory.get("best")
        if best is None or average > best[self.select]:
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
        for key in ("best", "previous", "recent", "free", LOOKED):
            state.memory.pop(key, None)


def _smallest_kept(weights: PrunableWeights, mask: Mask) -> float:
    smallest = [weight.detach().abs().masked_fill(~mask[name], torch.inf).min() for name, weight in weights.items()]
    return float(torch.stack(smallest).min())

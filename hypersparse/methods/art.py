"""ART: adaptive regularized training (Glandorf, Kaiser, Rosenhahn 2023, section 3, algorithm 1)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from statistics import mean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from hypersparse.distributed.shards import ShardGroup, largest_number
from hypersparse.errors import OptionError
from hypersparse.methods.base import (
    Phase,
    PhaseLR,
    PruningMethod,
    Requirements,
    Sparsity,
    StepRules,
    TrainingState,
)
from hypersparse.methods.snapshot import restore_, snapshot
from hypersparse.options import option, options
from hypersparse.plurals import how_many
from hypersparse.sparsity import penalties
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights

AVERAGED_EPOCHS = 3  # the pruned score is averaged over the epochs e-1, e, e+1 (supplement A)
OBSERVED = ("code", "first_release")  # references that are the score seen while training


@dataclass
class Best:
    """The pruned copy with the best average so far: the middle one of three epochs."""

    single: float  # its own score
    mean: float
    epoch: int
    copy: dict[str, Any]


@dataclass
class PrunedCopies:
    """State of the regularized phase; removed after pruning."""

    recent: list[float] = field(default_factory=list)  # pruned scores
    previous: dict[str, Any] | None = None  # the epoch before's copy
    best: Best | None = None
    free: bool = False  # whether pruning was, in the last epoch

    def __post_init__(self) -> None:
        if isinstance(self.best, dict):
            self.best = Best(**self.best)  # type: ignore[unreachable]  # from a checkpoint


@dataclass
class LevelCopies:
    """The best pruned copies at further sparsities, by their number; they stay after the regularized phase."""

    copies: dict[str, PrunedCopies] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.copies = {
            level: PrunedCopies(**held) if isinstance(held, dict) else held for level, held in self.copies.items()
        }


@options
class ART(PruningMethod):
    """Shrink the weights with a growing penalty until pruning costs no accuracy, then prune and fine-tune."""

    name: ClassVar[str] = "art"
    citation: ClassVar[str] = (
        "P. Glandorf, T. Kaiser, B. Rosenhahn: HyperSparse Neural Networks: Shifting Exploration to "
        "Exploitation through Adaptive Regularization. ICCV Workshops 2023."
    )
    sharded: ClassVar[bool] = True

    strength: float = option(default=5e-6, help="Factor on the penalty in the first regularized epoch.", gt=0)
    growth: float = option(default=1.05, help="Factor on the strength per regularized epoch.", ge=1)
    max_regularized_epochs: int = option(default=300, help="Prune at the latest after this many.", ge=1)
    stop_reference: Literal["auto", "code", "paper", "first_release"] = option(
        default="auto",
        help="What the best pruned copy's average is compared with: `code` the score seen while training the epoch "
        "(needs observe()), `paper` the dense network scored like the pruned one, `auto` code where there is one. "
        "`first_release` is code, with the copy's own score in place of the average.",
    )
    best_by: Literal["single", "mean"] = option(
        default="single",
        help="A new best is an average over three epochs. It must exceed the old best's own score (`single`, the "
        "authors' code) or its average (`mean`, the paper).",
    )
    tie_rule: Literal["exact", "authors"] = option(
        default="exact",
        help="Keep exactly total - floor(sparsity * total), or what is strictly above that last weight (`authors`).",
    )
    penalty: Literal["hypersparse", "l1", "l2"] = option(
        default="hypersparse", help="The penalty that shrinks the weights."
    )
    pretrain_epochs: int = option(default=60, help="Dense epochs before the penalty; 0 begins with the penalty.", ge=0)
    levels: tuple[Sparsity, ...] = option(
        default=(), help="Further sparsities at which the regularized phase keeps its best pruned copy."
    )

    def label(self) -> str:
        return f"art-{self.penalty}-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        length, held = self.pretrain_epochs, PhaseLR(held=True)
        pretrain = Phase("pre-train", epochs=length, lr=held, pretraining=True, cache_key=f"dense, {length} epochs")
        regularize = Phase(
            "regularize",
            epochs=self.max_regularized_epochs,
            rules=StepRules(penalty=self.weighted_penalty),
            stop_when=self.pruning_is_free,
            on_exit=self.prune,
            lr=held,
            requires=Requirements(task=True, observe=self.stop_reference in OBSERVED, weights=self.check),
            cache_key=repr(self),
        )
        fine_tune = Phase("fine-tune", epochs=epochs, reset_optimizer=True)
        return [*([pretrain] if length else []), regularize, fine_tune]

    def check(self, weights: PrunableWeights) -> None:
        """Raise an error if the authors' rule, which drops the last weight too, would leave none."""
        if self.tie_rule == "authors" and self.keep(weights) == 1:
            raise OptionError(
                f"{type(self).__name__}(tie_rule='authors') leaves none of {how_many(weights.total, 'weight')} at "
                f"sparsity {self.sparsity:g}; pass tie_rule='exact' or a lower sparsity."
            )

    def weighted_penalty(self, state: TrainingState, vector: Tensor) -> Tensor:
        """The penalty times its strength in this step (eq. 1)."""
        groups = state.weights.competing(vector, self.keep(state.weights))
        over = state.weights.shard_group
        penalty = reduce(add, (self.unscaled_penalty(part, places, over=over) for part, places in groups))
        return self.strength * self.growth**state.epoch_tensor * penalty

    def unscaled_penalty(self, vector: Tensor, keep: int | None = None, *, over: ShardGroup | None = None) -> Tensor:
        """The penalty of a vector of weights, of which `keep` will stay, without a strength.

        `over` are the ranks that have a part of it each; L1 and L2 are sums, whose gradients need no other part.
        """
        if self.penalty == "hypersparse":
            return penalties.hypersparse(vector, keep or keep_count(vector.numel(), self.sparsity), over=over)
        return (penalties.l1 if self.penalty == "l1" else penalties.l2)(vector)

    def mask(self, weights: PrunableWeights) -> Mask:
        """The mask of magnitude pruning now."""
        rule = Mask.top if self.tie_rule == "exact" else Mask.strictly_above
        return weights.select(magnitude(weights), self.keep(weights), rule=rule)

    def pruning_is_free(self, state: TrainingState) -> bool:
        """Score the pruned copy after an epoch and store the best; True if it is as good as the dense network."""
        mask = self.mask(state.weights)
        with state.weights.masked_by(mask):
            pruned = state.task.score(state.model)
            copy = snapshot(state.weights, mask)
        self.keep_levels(state)
        dense = self.dense_score(state)
        best = self.remember(_copies(state), pruned, copy, epoch=state.epoch)
        state.log |= {
            "strength": self.strength * self.growth**state.epoch,
            "w_kappa": _smallest_kept(state.weights, mask),
            "dense_score": dense,
            "pruned_score": pruned,
            "best_score": best.mean,
            "best_epoch": best.epoch,
            "kept_by_layer": list(mask.kept_by_layer().values()),
        }
        # Deviation: the authors' code asks for strictly better, and never stops when both are perfect.
        free = bool(self.stopping_score(best) >= dense)
        _copies(state).free = free
        return free

    def keep_levels(self, state: TrainingState) -> None:
        """Score pruned copies at the further sparsities, and store the best of each."""
        if not self.levels:
            return
        kept = state.memory.get(LevelCopies) or LevelCopies()
        state.memory.set(kept)
        for level in self.levels:
            mask = state.weights.select(magnitude(state.weights), keep_count(state.weights.total, level))
            with state.weights.masked_by(mask):
                score = state.task.score(state.model)
                copy = snapshot(state.weights, mask)
            copies = kept.copies.setdefault(f"{level:g}", PrunedCopies())
            self.remember(copies, score, copy, epoch=state.epoch)

    def stopping_score(self, best: Best) -> float:
        """The score of the best pruned copy that must reach the dense network's."""
        return best.single if self.stop_reference == "first_release" else best.mean

    def dense_score(self, state: TrainingState) -> float:
        """The score that pruning must not lower."""
        if self.stop_reference == "paper" or state.observed.count == 0:
            return state.task.score(state.model)
        return state.observed.value()

    def remember(self, copies: PrunedCopies, pruned: float, copy: dict[str, Any], *, epoch: int) -> Best:
        """Store the best pruned copy: the middle one of the three epochs with the best average."""
        recent = copies.recent = [*copies.recent, pruned][-AVERAGED_EPOCHS:]
        average, best = mean(recent), copies.best
        if best is None or average > (best.single if self.best_by == "single" else best.mean):
            if len(recent) == AVERAGED_EPOCHS and copies.previous is not None:
                best = Best(single=recent[1], mean=average, epoch=epoch - 1, copy=copies.previous)
            else:
                best = Best(single=pruned, mean=average, epoch=epoch, copy=copy)
        copies.best, copies.previous = best, copy
        return best

    def prune(self, state: TrainingState) -> None:
        """Replace the network by its best pruned copy and set the mask."""
        copies = state.memory.pop(PrunedCopies)
        assert copies is not None
        assert copies.best is not None
        if not copies.free:
            warnings.warn(
                f"Pruning still cost accuracy after {how_many(state.epoch + 1, 'regularized epoch')}; the best pruned "
                f"network (epoch {copies.best.epoch}, score {copies.best.mean:.4g}) is fine-tuned. Raise "
                "max_regularized_epochs, strength or growth.",
                stacklevel=2,
            )
        restore_(state.weights, copies.best.copy)


def _copies(state: TrainingState) -> PrunedCopies:
    copies = state.memory.get(PrunedCopies) or PrunedCopies()
    state.memory.set(copies)
    return copies


def _smallest_kept(weights: PrunableWeights, mask: Mask) -> float:
    return -largest_number(
        {name: -score.masked_fill(~mask[name], torch.inf) for name, score in magnitude(weights).items()}
    )

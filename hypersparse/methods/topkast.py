"""Top-KAST: top-k always sparse training (Jayakumar, Pascanu, Rae, Osindero, Elsen 2020)."""

from collections.abc import Sequence
from typing import ClassVar

import torch

from hypersparse.methods.base import Method, Phase, Sparsity, TrainingState
from hypersparse.methods.drop_grow import DISTRIBUTION_HELP, decay_, forget_past_
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution, keep_count, select
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude


@options
class TopKAST(Method):
    """Use the largest weights, let the next largest learn beside them unused, and keep choosing the largest anew."""

    name: ClassVar[str] = "topkast"
    citation: ClassVar[str] = (
        "S. M. Jayakumar, R. Pascanu, J. W. Rae, S. Osindero, E. Elsen: Top-KAST: Top-K Always Sparse Training. "
        "NeurIPS 2020."
    )

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")
    distribution: Distribution = option(default="uniform", help=DISTRIBUTION_HELP)
    backward_ratio: float = option(
        default=2.0, help="How many weights learn, as a multiple of those that are used.", ge=1
    )
    exploration_decay: float = option(
        default=1e-4, help="Decay of those that learn unused, divided by the density.", ge=0
    )
    update_every: int = option(default=100, help="Steps between two choices.", ge=1)
    update_until: float = option(
        default=1.0, help="From here on the mask stays, as a fraction of the training.", gt=0, le=1
    )

    def label(self) -> str:
        return f"topkast-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        exploring = min(epochs, max(1, round(self.update_until * epochs)))
        explore = Phase(
            "explore",
            epochs=exploring,
            schedule_epochs=epochs,
            enter=self.choose_largest,
            adjust=self.choose_largest,
            adjust_every=self.update_every,
            before_step=self.unite,
            after_step=self.part,
            learning=self.learners,
            leave=self.forget_unused,
        )
        settle = Phase("settle", epochs=epochs - exploring, schedule_epochs=epochs, schedule_start=exploring)
        return [explore, settle] if settle.epochs else [explore]

    @torch.no_grad()
    def choose_largest(self, state: TrainingState) -> None:
        """From now on the largest of all weights are used, and the next largest learn (sets A and B of the paper)."""
        weights, (rest, learning) = state.weights, self.remembered(state)
        weights.apply_mask_()  # the optimizer has just moved the dropped ones too
        torch._foreach_add_(list(weights.values()), rest)
        scores, keep = magnitude(weights), keep_count(weights.total, self.sparsity)
        used = select(scores, keep, self.distribution)
        chosen = used | select(scores, min(weights.total, round(self.backward_ratio * keep)), self.distribution)
        forget_past_(state, chosen - self.learners(state))
        for name, value, learns in zip(weights, rest, learning, strict=True):
            value.copy_(weights[name].masked_fill(used[name], 0.0))  # in place: a captured step knows the address
            learns.copy_(chosen[name] & ~used[name])
        weights.set_mask_(used)

    @torch.no_grad()
    def unite(self, state: TrainingState) -> None:
        """Let the optimizer see all weights, used or not, and decay the unused."""
        for weight, value in zip(state.weights.values(), self.remembered(state)[0], strict=True):
            weight.add_(value)  # exact: one of the two is 0
            decay_(state, weight, value, strength=self.exploration_decay / (1 - self.sparsity))

    @torch.no_grad()
    def part(self, state: TrainingState) -> None:
        """Put the unused weights that have learnt away; what the optimizer did to the others never happened."""
        for weight, value, learns in zip(state.weights.values(), *self.remembered(state), strict=True):
            torch.where(learns, weight, value, out=value)

    def learners(self, state: TrainingState) -> Mask:
        """The used weights and those that learn unused."""
        used = state.weights.mask or Mask.all_kept(state.weights)
        return used | Mask(dict(zip(state.weights, self.remembered(state)[1], strict=True)))

    def forget_unused(self, state: TrainingState) -> None:
        """Dropped weights have no value any more."""
        del state.memory[self.name]

    def remembered(self, state: TrainingState) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """By layer the values of dropped weights, 0.0 for the others, and which of them learn."""
        weights, device = state.weights.values(), state.weights.device
        found = state.memory.get(self.name) or [
            [torch.zeros_like(weight, dtype=kind) for weight in weights] for kind in (None, torch.bool)
        ]
        rest, learning = ([value.to(device) for value in part] for part in found)  # a checkpoint's are on the CPU
        state.memory[self.name] = [rest, learning]
        return rest, learning

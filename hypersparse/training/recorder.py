"""`Recorder`: stores the data of a run's record at the end of every epoch.

It does not change the run, which has the same bits without it, and adds nothing to training steps.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from hypersparse.errors import RunError
from hypersparse.methods.base import Method, Phase
from hypersparse.sparsifier import Sparsifier
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.checkpoint import to_cpu
from hypersparse.storage.history import START, Epoch, History, nested_masks, pack_bits
from hypersparse.storage.record import Known, levels_of, make_record
from hypersparse.storage.schemas import Entry
from hypersparse.training.compiled_eval import CompiledEval
from hypersparse.training.evaluate import evaluate
from hypersparse.training.loaders import EvalLoader, Images

CURVE_EPOCHS = 10  # a curve of the sorted weights is kept of every so many epochs with a penalty
CURVE_POINTS = 1000


def curve_places(count: int) -> Tensor:
    """Places in sorted weights: half of them evenly spaced, the others denser towards the largest weights."""
    half = CURVE_POINTS // 2
    even = torch.linspace(0, count - 1, half, dtype=torch.float64)
    dense = count - torch.logspace(0, math.log10(count), half, dtype=torch.float64)
    return torch.cat([even, dense]).round().long().clamp(0, count - 1).sort().values


class Recorder:
    """Records one run.

    Masks of all `levels` are stored, the run's own sparsity and the paper's, since runs of other sparsities may start
    from the same epochs.
    """

    def __init__(
        self, history: History, method: Method, weights: PrunableWeights, images: Images, compiled_eval: CompiledEval
    ) -> None:
        self.history, self._compiled_eval = history, compiled_eval
        self.sparsity = method.sparsity
        self.levels = levels_of(method)
        self._method = method
        self._weights, self._images, self._classes = weights, images, images.test.classes
        self._keep = 0 if self.sparsity is None else keep_count(weights.total, self.sparsity)
        self._labels = images.test.labels.cpu().numpy()
        self._tested: Tensor | None = None
        self._pruned: Tensor | None = None

    def tested(self, hits: Tensor) -> None:
        """Receive which test images were classified correctly."""
        self._tested = hits

    def on_scores(self, scores: Tensor) -> None:
        """Receive per-sample scores that the method asked for; they count if the network was pruned then.

        Scores of shuffled images, or of a part of them, cannot be assigned to images of the file.
        """
        nonzero = torch.stack([weight.count_nonzero() for weight in self._weights.values()]).sum()
        if self._in_order and len(scores) == self._images.batches.samples and nonzero <= self._keep:
            self._pruned = scores.bool()

    @property
    def _in_order(self) -> bool:
        """Whether the method scores whole images in file order."""
        return isinstance(self._images.scoring, EvalLoader)

    def start(self, sparsifier: Sparsifier) -> None:
        """Take down which training images are right before the first step of a phase that counts them."""
        phase, number = sparsifier.phase, sparsifier.total_epoch
        if phase.pretraining and number == 0:
            self.history.write(number, to_cpu({"dense_at_start": self._right(sparsifier)}), part=START)
        elif phase.rules.penalty is not None and self._keep and sparsifier.mask is None and self._in_order:
            with self._weights.masked_by(Mask.top(magnitude(self._weights), self._keep)):
                self.history.write(number, to_cpu({"pruned_at_start": self._right(sparsifier)}), part=START)

    @contextmanager
    def epoch(self, sparsifier: Sparsifier) -> Iterator[None]:
        """Wraps the evaluation and the method's actions at an epoch's end, then writes what was observed."""
        number, phase = sparsifier.total_epoch, sparsifier.phase
        self._tested = self._pruned = None
        # Before the block: at its end the network may be an earlier one, pruned.
        content = {
            **self._masks(sparsifier.mask),
            "curve": self._curve(phase, sparsifier.state.epoch),
            "dense": self._right(sparsifier) if phase.pretraining else None,
        }
        yield
        content["pruned"] = None if self._pruned is None else pack_bits(self._pruned)
        content["class_correct"] = None if self._tested is None else self._by_class(self._tested)
        self.history.write(number, to_cpu(content))

    def epochs(self, count: int) -> list[Epoch] | None:
        """The first epochs, for another run; None unless all of them were recorded."""
        found = [epoch for number in range(count) if (epoch := self.history.read(number)) is not None]
        return found if len(found) == count else None

    def record(self, entries: Sequence[Entry], mask: Mask | None) -> dict[str, np.ndarray]:
        """The record of the run so far; `mask` is the final one."""
        weights = self._weights
        known = Known(
            phases=[entry["phase"] for entry in entries],
            sparsity=self.sparsity,
            totals={name: weight.numel() for name, weight in weights.items()},
            final=None if mask is None else torch.cat([layer.flatten() for layer in mask.values()]),
            samples=self._images.batches.samples,
            class_total=np.bincount(self._labels, minlength=self._classes),
            device=weights.device,
        )
        try:
            return make_record((self.history.read(number) for number in range(len(entries))), known)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise RunError(
                f"The history in {self.history.folder} does not fit its run ({reason}). Delete that folder, and run "
                "again to finish without it."
            ) from error

    def _masks(self, mask: Mask | None) -> Epoch:
        """Masks of the largest weights, unless the current mask is already as small as the final one."""
        if not self.levels or (mask is not None and mask.kept <= self._keep):
            return {"levels": []}
        magnitudes = self._weights.vector().detach().abs()
        keeps = [keep_count(magnitudes.numel(), level) for level in self.levels]
        packed, smallest = nested_masks(magnitudes, keeps)
        return {"levels": self.levels, "masks": packed, "w_kappa": smallest}

    def _curve(self, phase: Phase, epoch: int) -> Tensor | None:
        """|w| and the penalty's |gradient| without its strength at places of the sorted weights, and these places."""
        if phase.rules.penalty is None or epoch % CURVE_EPOCHS:
            return None
        vector = self._weights.vector().detach().requires_grad_()
        with torch.enable_grad():
            if (penalty := self._method.unscaled_penalty(vector)) is None:
                return None
            (gradient,) = torch.autograd.grad(penalty, vector)
        magnitudes, order = vector.detach().abs().sort()
        places = curve_places(len(order)).to(order.device)
        values = magnitudes[places], gradient[order[places]].abs(), (places + 0.5) / len(order)
        return torch.stack([value.double() for value in values])

    def _right(self, sparsifier: Sparsifier) -> Tensor:
        """Which training images the network gets right as it is."""
        images = self._images.batches.in_order(self._images.test.batch_size)
        return pack_bits(evaluate(sparsifier.state.model, images, self._compiled_eval.run).hits)

    def _by_class(self, hits: Tensor) -> Tensor:
        right = self._labels[hits.cpu().numpy()]
        return torch.from_numpy(np.bincount(right, minlength=self._classes))

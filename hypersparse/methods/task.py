"""`Task`: loss, data and metric. Methods score networks and compute gradients with it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isnan
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hypersparse.distributed import Ranks
from hypersparse.distributed.shards import is_fsdp
from hypersparse.errors import OptionError
from hypersparse.plurals import how_many
from hypersparse.sparsity.eval_mode import eval_mode
from hypersparse.sparsity.scores import Batch, Run, call_model
from hypersparse.sparsity.selection import unwrap

if TYPE_CHECKING:
    from hypersparse.sparsifier import Sparsifier

MOST_BATCHES = 10_000  # of a loader that does not say how many it has; more never end
Metric = Callable[[Any, Any], Tensor | float]


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """1 for each sample whose largest output is its label, 0 otherwise and where an output is NaN.

    >>> accuracy(torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, torch.nan]]), torch.tensor([1, 1, 1]))
    tensor([1., 0., 0.])
    """
    # argmax takes NaN for the largest, so a network without a usable output would score as a constant guess.
    return ((outputs.argmax(dim=1) == labels) & ~outputs.isnan().any(dim=1)).float()


def _as_pair(batch: Any) -> tuple[Any, Any]:
    try:
        if isinstance(batch, Tensor | Mapping):  # which fall into rows and keys
            raise TypeError
        inputs, labels = batch
    except (TypeError, ValueError):
        parts = how_many(len(batch), "part") if isinstance(batch, Sequence) else f"a {type(batch).__name__}"
        raise OptionError(
            f"A batch of the task's loader is (inputs, labels); got {parts}. Say what is what by "
            "Task(..., unpack=lambda batch: (batch[0], batch[1]))."
        ) from None
    return inputs, labels


@dataclass
class BestScore:
    """The best that a sparse network has had so far."""

    score: float


@dataclass(frozen=True)
class Task:
    """A loss, samples to score the network on, and a metric (larger is better; accuracy by default).

    `loader` is iterated again for every score and yields `(inputs, labels)`, or whatever `unpack` turns into that.
    `metric(outputs, labels)` returns one score for each sample, or one for the batch; then batches count by their size.
    A metric that is no mean over samples, such as F1, sets `metric_over_dataset=True` and is called once with all
    outputs and labels. `on_scores` receives the scores of the single samples, in the loader's order, where the metric
    gives them. `forward(model, inputs)` gives the outputs.
    Methods that score gradients before training draw samples from `train_loader`, the batches of the training loop; by
    default from `loader`. With `classes` they need not search for all classes. Of each loader only the
    first `max_batches` are read, where that is given, as of a stream that never ends. Of several `ranks` each
    may have its own samples: a score is over all of them.
    """

    criterion: Callable[[Any, Any], Tensor]
    loader: Iterable[Any]
    metric: Metric = accuracy
    metric_over_dataset: bool = False
    unpack: Callable[[Any], tuple[Any, Any]] = _as_pair
    on_scores: Callable[[Tensor], None] | None = None
    forward: Run = call_model
    train_loader: Iterable[Any] | None = None
    classes: int | None = None
    max_batches: int | None = None
    ranks: Ranks = field(default_factory=Ranks.alone, repr=False, compare=False)

    def score(self, model: nn.Module) -> float:
        """The metric of `model` over the loader, in evaluation mode and without gradients."""
        device = next(model.parameters()).device
        if self.ranks.several:  # as DistributedDataParallel would; its own wait for each other in every batch
            self.ranks.copy_first_(model.buffers())
            model = unwrap(model)
        with torch.no_grad(), eval_mode(model):
            score = self._over_dataset(model, device) if self.metric_over_dataset else self._mean(model, device)
        if isnan(score):  # compares with nothing, so that a method would pick its best network at random
            raise OptionError("The metric of the task is NaN; return a number for every batch, such as 0.0 for none.")
        return score

    def best(self, sparsifier: "Sparsifier") -> bool:
        """Whether the network is sparse and scores higher than at every call before; then it is the one to save.

        A dense network is not scored. The best score is part of `sparsifier.state_dict()`.
        """
        if not sparsifier.is_sparse:
            return False
        memory = sparsifier.state.memory
        score = replace(self, ranks=sparsifier.ranks).score(sparsifier.state.model)
        before = memory.get(BestScore)
        if before is not None and score <= before.score:
            return False
        memory.set(BestScore(score))
        return True

    def first_batch(self, device: torch.device) -> Batch:
        """The first batch to train on."""
        with self.ranks.together():
            for inputs, labels in self.training_batches():
                found = to_device(inputs, device), to_device(labels, device)
                break
            else:
                raise OptionError(_no_batch())
        return found

    def per_class(self, count: int, *, passes: int, device: torch.device) -> list[Batch]:
        """`passes` batches with `count` samples of every class, sorted by class, without common samples."""
        with self.ranks.together():
            found = self._samples(count * passes)
        labels = torch.tensor(sorted(found), device=device).repeat_interleave(count)
        starts = range(0, count * passes, count)
        parts = [[sample for label in sorted(found) for sample in found[label][at : at + count]] for at in starts]
        return [(torch.stack(part).to(device), labels) for part in parts]

    def _samples(self, wanted: int) -> dict[int, list[Tensor]]:
        found: dict[int, list[Tensor]] = defaultdict(list)
        for inputs, labels in self.training_batches():
            for sample, label in zip(inputs, _classes(inputs, labels), strict=True):
                if len(found[label]) < wanted:
                    found[label].append(sample)
            if len(found) == self.classes and all(len(samples) == wanted for samples in found.values()):
                break
        _check_found(found, wanted, self.classes)
        return found

    def training_batches(self) -> Iterator[tuple[Any, Any]]:
        """Batches such as the loop trains on, as far as they are known."""
        batches = self.loader if self.train_loader is None else self.train_loader
        return (self.unpack(batch) for batch in self._ending(batches))

    def _ending(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches that are read; an error if they do not end."""
        endless = self.max_batches is None and not _has_length(batches)
        for number, batch in enumerate(islice(batches, self.max_batches)):
            if endless and number == MOST_BATCHES:
                raise OptionError(
                    f"The task's loader has no length and did not end after {MOST_BATCHES:,} batches. Pass one that "
                    "ends, or Task(..., max_batches=N) to score on the first N."
                )
            yield batch

    def _mean(self, model: nn.Module, device: torch.device) -> float:
        mean, each = RunningMean(device), []

        def score(outputs: Any, labels: Any) -> None:
            scores = self.metric(outputs, labels)
            mean.add(scores, len(labels))
            if isinstance(scores, Tensor) and scores.dim():
                each.append(scores)

        self._run(model, device, score)
        mean.sum_over_(self.ranks)
        if mean.count == 0:
            raise OptionError(_no_batch())
        if self.on_scores is not None:
            scores = self.ranks.concatenate(torch.cat(each) if each else torch.empty(0, device=device))
            if len(scores):
                self.on_scores(scores)
        return mean.value()

    def _over_dataset(self, model: nn.Module, device: torch.device) -> float:
        found: list[tuple[Tensor, Tensor]] = []
        self._run(model, device, lambda *pair: found.append(pair))
        with self.ranks.together():
            if not found:
                raise OptionError(_no_batch())
            outputs, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
        return float(self.metric(self.ranks.concatenate(outputs), self.ranks.concatenate(labels)))

    def _run(self, model: nn.Module, device: torch.device, take: Callable[[Any, Any], None]) -> None:
        """Run the network on all batches; `take` gets the outputs and labels of each."""

        def run(batch: Any) -> tuple[Any, Any]:
            inputs, labels = (to_device(part, device) for part in self.unpack(batch))
            return self.forward(model, inputs), labels

        if self.ranks.several and is_fsdp(model):
            for batch, counts in self._in_step():
                with self.ranks.together():
                    outputs = run(batch)
                    if counts:
                        take(*outputs)
            return
        with self.ranks.together():
            for batch in self._ending(self.loader):
                take(*run(batch))

    def _in_step(self) -> Iterator[tuple[Any, bool]]:
        """Batches of which every rank has one at the same time, as `fully_shard` needs, and whether each counts.

        A rank that has no more repeats its last one, which does not.
        """
        batches, last = self._ending(self.loader), None
        while True:
            with self.ranks.together():
                batch = next(batches, None)
                if batch is None and last is None:
                    raise OptionError(_no_batch())
            if not any(self.ranks.sum(batch is not None)):
                return
            last = last if batch is None else batch
            yield last, batch is not None


class RunningMean:
    """A mean over samples, accumulated on the device."""

    def __init__(self, device: torch.device) -> None:
        self.total = torch.zeros((), dtype=torch.float64, device=device)
        self.count = 0

    def add(self, scores: Tensor | float, count: int) -> None:
        """Add one score per sample, or one score for `count` samples."""
        scores = torch.as_tensor(scores).detach()
        self.total += scores.sum() if scores.dim() else scores * count
        self.count += count

    def reset(self) -> None:
        """Reset in place."""
        self.total.zero_()
        self.count = 0

    def sum_over_(self, ranks: Ranks) -> None:
        """Make it the mean over the samples of all ranks."""
        if ranks.several:
            total, count = ranks.sum(float(self.total), self.count)
            self.total.fill_(total)
            self.count = int(count)

    def value(self) -> float:
        """The mean so far."""
        return float(self.total) / self.count


def _has_length(batches: Iterable[Any]) -> bool:
    try:
        len(batches)  # type: ignore[arg-type]
    except TypeError:  # also of a DataLoader over an IterableDataset
        return False
    return True


def _no_batch() -> str:
    return "The task's loader gave no batch; pass one that can be iterated again for every score, not a generator."


def _classes(inputs: Any, labels: Any) -> list[int]:
    numbers = (
        isinstance(labels, Tensor) and labels.dim() == 1 and not (labels.is_floating_point() or labels.is_complex())
    )
    if not (numbers and isinstance(inputs, Tensor) and len(inputs) == len(labels)):
        raise OptionError(
            "Samples of every class can only be picked from a tensor of inputs [N, ...] with a tensor of class numbers "
            "[N]. For other tasks pass data='batch', which takes the first batch."
        )
    chosen: list[int] = labels.tolist()
    return chosen


def _check_found(found: dict[int, list[Tensor]], wanted: int, classes: int | None) -> None:
    if not found:
        raise OptionError(_no_batch())
    label, samples = min(found.items(), key=lambda item: len(item[1]))
    if len(samples) < wanted:
        raise OptionError(
            f"Scoring the weights takes {how_many(wanted, 'sample')} of every class, but class {label} has "
            f"{len(samples)}; pass a smaller `per_class` or fewer `passes`, or data='batch'."
        )
    if classes is not None and len(found) != classes:
        raise OptionError(
            f"There should be samples of {how_many(classes, 'class', 'classes')}; the training batches have "
            f"{len(found)}. Pass as many as `classes`, or leave it out."
        )


def to_device(part: Any, device: torch.device) -> Any:
    """A tensor of a batch on a device; what is no tensor stays as it is."""
    return part.to(device, non_blocking=True) if isinstance(part, Tensor) else part

"""The images of a run: batches to train on, images to score on, images to test on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hypersparse.data.batches import Batches, ShuffledBatches, in_order
from hypersparse.data.dataset import AnySplit, Dataset
from hypersparse.data.encoded import EncodedSplit
from hypersparse.data.stream import StreamedBatches, read_in_order
from hypersparse.distributed import Ranks
from hypersparse.errors import DataError, OptionError
from hypersparse.recipe import Recipe
from hypersparse.training.machine import Machine
from hypersparse.training.memory import is_streamed

SCORING_SEED = 1_000_003  # the images a method scores on, if augmented, are drawn apart from the training's
INITIAL_SCORING_SEED = 2_000_003  # as are those that score weights before training
EVAL_NUMBERS = 2500 * 3 * 64 * 64  # in a batch that is scored on a GPU


class EvalLoader:
    """Images in file order, normalised and not augmented; can be iterated repeatedly.

    Of several `ranks` each iterates over its own part. Encoded images are decoded in every iteration, and `streamed`
    ones are copied to the device batch by batch.
    """

    def __init__(
        self,
        split: AnySplit,
        dataset: Dataset,
        device: torch.device,
        ranks: Ranks | None = None,
        *,
        streamed: bool = False,
        workers: int = 0,
    ) -> None:
        self._split, self._workers = split, workers
        self._images = None if streamed or isinstance(split, EncodedSplit) else split.images.to(device)
        self.labels = split.labels.to(device)
        self.classes, self.mean, self.std = len(dataset.classes), dataset.mean, dataset.std
        self._share = (ranks or Ranks.alone()).share(len(split))
        # More do not fit a CPU's caches: 512 at once took ResNet-32 1.8 times as long.
        most = max(EVAL_NUMBERS // torch.Size(dataset.shape).numel(), 1)
        self.batch_size = min(2500, most) if device.type == "cuda" else 64

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        share, size, labels = self._share, self.batch_size, self.labels[self._share]
        mean, std = (torch.tensor(numbers, device=labels.device) for numbers in (self.mean, self.std))
        if self._images is not None:
            return in_order(self._images[share], labels, mean, std, batch_size=size)
        return read_in_order(self._split[share], labels, mean, std, batch_size=size, workers=self._workers)


@dataclass(frozen=True)
class ScoringLoader:
    """Shuffled and augmented training images, the same in every iteration, so that there is no state to save."""

    make: Callable[[], ShuffledBatches]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.make())


@dataclass(frozen=True)
class Images:
    """The images that a run trains, scores and tests on."""

    batches: ShuffledBatches
    scoring: ShuffledBatches | EvalLoader  # what a method scores the network on
    test: EvalLoader
    validation: EvalLoader | None
    initial_scoring: ScoringLoader  # what weights are scored with before training


def bring_images(
    recipe: Recipe, seed: int, dataset: Dataset, device: torch.device, machine: Machine, ranks: Ranks | None = None
) -> Images:
    """Put the images of a recipe on the device, or stream them if they do not fit."""
    options, streamed = recipe.data, is_streamed(dataset, machine)
    if not streamed:
        dataset = dataset.to(device)
    train, held_out = hold_out(dataset.train, options.validation)
    scored = evenly_spaced(train, options.scoring_count)
    workers = machine.loading_workers()

    def make(split: AnySplit, seed: int, ranks: Ranks | None = ranks) -> ShuffledBatches:
        settings = {**_settings(recipe, dataset), "seed": seed, "ranks": ranks}
        if streamed or isinstance(split, EncodedSplit):
            return StreamedBatches(split, device, workers=workers, **settings)
        return Batches(split.images, split.labels, **settings)

    def clean(split: AnySplit) -> EvalLoader:
        return EvalLoader(split, dataset, device, ranks, streamed=streamed, workers=workers)

    augmented = options.scoring_images == "augmented"
    return Images(
        batches=make(train, seed),
        scoring=make(scored, seed + SCORING_SEED) if augmented else clean(scored),
        test=clean(dataset.test),
        validation=clean(held_out) if held_out else None,
        initial_scoring=ScoringLoader(
            lambda: make(train, seed + INITIAL_SCORING_SEED, None)
        ),  # the same samples on all ranks
    )


def _settings(recipe: Recipe, dataset: Dataset) -> dict[str, Any]:
    options = recipe.data
    return {
        "batch_size": recipe.training.batch_size,
        "padding": options.padding,
        "flip": options.flip,
        "drop_last": options.drop_last,
        "mean": dataset.mean,
        "std": dataset.std,
    }


def hold_out(split: AnySplit, count: int) -> tuple[AnySplit, AnySplit | None]:
    """Hold out `count` samples of a split, the same for every seed."""
    if count == 0:
        return split, None
    rest, held = places(len(split), count)
    return split[rest], split[held]


def evenly_spaced(split: AnySplit, count: int) -> AnySplit:
    """`count` evenly spaced samples of a split, or all with 0."""
    if count > len(split):
        raise OptionError(f"`scoring_count` is {count}, of {len(split)} training images; 0 scores on all.")
    return split[torch.arange(count) * len(split) // count] if count else split


def places(total: int, held_out: int) -> tuple[Tensor, Tensor]:
    """Places in the file of the training samples and of the held-out ones, both in order."""
    if held_out >= total:
        raise DataError(f"`validation` holds out {held_out} of {total} training samples; none would be left.")
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    return order[held_out:].sort().values, order[:held_out].sort().values

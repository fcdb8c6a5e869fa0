"""The images of a run, on its device: batches to train on, images to score on, images to test on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hypersparse.data.batches import Batches, in_order
from hypersparse.data.dataset import Dataset, Split
from hypersparse.distributed import Ranks
from hypersparse.errors import DataError
from hypersparse.recipe import Recipe

SCORING_SEED = 1_000_003  # the images a method scores on, if augmented, are drawn apart from the training's
FIRST_LOOK_SEED = 2_000_003  # and so are those that weights are scored with before training


class EvalLoader:
    """Images in file order, normalised and otherwise as they are; can be iterated again and again.

    Of several `ranks` each iterates over its own stretch of them.
    """

    def __init__(self, split: Split, dataset: Dataset, device: torch.device, ranks: Ranks | None = None) -> None:
        self.images, self.labels = split.images.to(device), split.labels.to(device)
        self.classes, self.mean, self.std = len(dataset.classes), dataset.mean, dataset.std
        self._share = (ranks or Ranks.alone()).share(len(split))
        # More do not fit a CPU's caches: 512 at once took ResNet-32 1.8 times as long.
        self.batch_size = 2500 if device.type == "cuda" else 64

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self.images[self._share], self.labels[self._share]
        return in_order(images, labels, batch_size=self.batch_size, mean=self.mean, std=self.std)


@dataclass(frozen=True)
class ScoringLoader:
    """Training images in random order and augmented; the same ones every time, so nothing has to be saved."""

    make: Callable[[], Batches]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.make())


@dataclass(frozen=True)
class Images:
    """What a run trains, scores and tests on."""

    batches: Batches
    scoring: Batches | EvalLoader  # what a method scores the network on
    test: EvalLoader
    validation: EvalLoader | None
    first_look: ScoringLoader  # what weights are scored with before training


def bring_images(
    recipe: Recipe, seed: int, dataset: Dataset, device: torch.device, ranks: Ranks | None = None
) -> Images:
    """Put a data set on the device as a recipe asks."""
    options = recipe.data
    train, held_out = hold_out(dataset.train, options.validation)
    images, labels = train.images.to(device), train.labels.to(device)

    def batches(seed: int, ranks: Ranks | None = ranks) -> Batches:
        return Batches(
            images,
            labels,
            batch_size=recipe.training.batch_size,
            seed=seed,
            padding=options.padding,
            flip=options.flip,
            drop_last=options.drop_last,
            mean=dataset.mean,
            std=dataset.std,
            ranks=ranks,
        )

    return Images(
        batches=batches(seed),
        scoring=batches(seed + SCORING_SEED)
        if options.scoring_images == "augmented"
        else EvalLoader(train, dataset, device, ranks),
        test=EvalLoader(dataset.test, dataset, device, ranks),
        validation=EvalLoader(held_out, dataset, device, ranks) if held_out else None,
        first_look=ScoringLoader(lambda: batches(seed + FIRST_LOOK_SEED, None)),  # the same samples on all ranks
    )


def hold_out(split: Split, count: int) -> tuple[Split, Split | None]:
    """Take `count` samples out of a split, the same ones for every seed."""
    if count == 0:
        return split, None
    rest, held = places(len(split), count)
    return Split(split.images[rest], split.labels[rest]), Split(split.images[held], split.labels[held])


def places(total: int, held_out: int) -> tuple[Tensor, Tensor]:
    """Where in the file the samples are that are trained on, and the held-out ones; both in order."""
    if held_out >= total:
        raise DataError(f"`validation` holds out {held_out} of {total} training samples; none would be left.")
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    return order[held_out:].sort().values, order[:held_out].sort().values

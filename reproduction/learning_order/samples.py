"""`Samples`: the training images of runs, with their classes and label errors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.data.dataset import Dataset, Split
from hypersparse.errors import RunError
from hypersparse.training.loaders import places
from reproduction.learning_order.cifar_n import HumanLabels


@dataclass(frozen=True, eq=False)
class Samples:
    """The training images of a run, in file order and without held-out ones."""

    data: str
    classes: tuple[str, ...]
    places: NDArray[np.int64]  # in the data set's training images
    labels: NDArray[np.int64]
    hardness: NDArray[np.int64] | None = None  # people who were wrong
    people: int = 0  # who looked at each image

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: NDArray[Any]) -> "Samples":
        """A subset."""
        hardness = None if self.hardness is None else self.hardness[chosen]
        return replace(self, places=self.places[chosen], labels=self.labels[chosen], hardness=hardness)

    def images(self, dataset: Dataset) -> Split:
        """The images themselves, from the data set."""
        chosen = torch.from_numpy(self.places)
        return Split(dataset.train.images[chosen], dataset.train.labels[chosen])


def samples_of(runs: Sequence[FinishedRun], dataset: Dataset, human: HumanLabels | None = None) -> Samples:
    """The training images that these runs share, from their data set."""
    kinds = {(run.recipe.data.name, run.recipe.data.validation, str(run.recipe.data.options)): run for run in runs}
    if len(kinds) > 1:
        several = " and ".join(f"{name} ({held} held out)" for name, held, _ in sorted(kinds))
        raise RunError(f"Expected runs on the same training images; these are on {several}. Pass one kind.")
    ((_, held, _),) = kinds
    rest = places(len(dataset.train), held)[0].numpy()
    hardness = None
    if human is not None:
        human.check(dataset)
        hardness = human.hardness[rest]
    labels = dataset.train.labels.numpy()[rest]
    return Samples(dataset.name, dataset.classes, rest, labels, hardness, human.people if human else 0)


def check_counts(run: FinishedRun, samples: Samples) -> None:
    """Raise an error if a run's record counts other images."""
    for name in ("dense_correct", "pruned_correct"):
        if (count := len(run.record[name])) not in (0, len(samples)):
            raise RunError(
                f"The record of {run.folder.path} counts {count:,} training images but {samples.data} has "
                f"{len(samples):,} of them here; point --data-dir to the data it was trained on."
            )

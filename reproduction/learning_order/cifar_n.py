"""CIFAR-N: human labels of CIFAR's training images, and the difficulty of each image derived from them.

J. Wei et al., "Learning with Noisy Labels Revisited", ICLR 2022. Its license is CC BY-NC 4.0, so this package does
not include it. `read` takes the published files `CIFAR-10_human.pt` and `CIFAR-100_human.pt`, or an `.npz` file of
the same arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hypersparse.data.dataset import Dataset
from hypersparse.data.npz_file import read_arrays
from hypersparse.errors import DataError

CLEAN = "clean_label"
HUMAN = ("random_label1", "random_label2", "random_label3", "noisy_label")  # CIFAR-10N has three, CIFAR-100N the last
RECONSTRUCT = np.zeros(0).__reduce__()[0]
NUMPY: tuple[Any, ...] = (  # what the pickled arrays are made of, under the names of both versions of numpy
    (RECONSTRUCT, "numpy.core.multiarray._reconstruct"),
    RECONSTRUCT,
    np.ndarray,
    np.dtype,
    type(np.dtype(np.int64)),
)


@dataclass(frozen=True, eq=False)
class HumanLabels:
    """The true label of each training image, and its labels by one or several people."""

    path: Path
    clean: NDArray[np.int64]  # [N]
    human: NDArray[np.int64]  # [people, N]

    @property
    def people(self) -> int:
        """The number of labels per image: three for CIFAR-10, one for CIFAR-100."""
        return len(self.human)

    @property
    def hardness(self) -> NDArray[np.int64]:
        """The number of wrong labels per image."""
        wrong: NDArray[np.int64] = (self.human != self.clean).sum(0)
        return wrong

    def check(self, dataset: Dataset) -> None:
        """Raise an error unless the labels belong to this data set's training images, in its order."""
        labels = dataset.train.labels.numpy()
        if len(labels) != len(self.clean):
            came = f"{len(self.clean):,} images and {dataset.name} has {len(labels):,}"
            raise DataError(f"{self.path} does not belong to {dataset.name}: it labels {came}.")
        if differing := int((labels != self.clean).sum()):
            raise DataError(
                f"{self.path} does not belong to {dataset.name}: its clean labels differ from the data set's in "
                f"{differing:,} of {len(labels):,} images; pass CIFAR-10N for cifar10 and CIFAR-100N for cifar100."
            )


def read(path: str | Path) -> HumanLabels:
    """Read the labels from an `.npz` file or the original `.pt` file, without executing any code of it."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(f"There is no file {path}; expected CIFAR-N as an .npz or its original .pt file.")
    table: Mapping[str, Any] = read_arrays(path) if path.suffix == ".npz" else _read_torch(path)
    human = [_labels(path, table, name) for name in HUMAN if name in table]
    if CLEAN not in table or not human:
        raise DataError(
            f"{path} is not CIFAR-N: expected `{CLEAN}` and `random_label1` to 3 or `noisy_label`; "
            f"it has: {', '.join(sorted(table)) or 'nothing'}."
        )
    clean = _labels(path, table, CLEAN)
    if any(len(each) != len(clean) for each in human):
        raise DataError(f"{path} is damaged: its arrays of labels differ in length.")
    return HumanLabels(path, clean, np.stack(human))


def _labels(path: Path, table: Mapping[str, Any], name: str) -> NDArray[np.int64]:
    array = np.asarray(table[name])
    if array.ndim != 1 or array.dtype.kind not in "ui" or len(array) == 0:
        raise DataError(f"{path} is damaged: `{name}` must be a 1-D array of integers; got {array.dtype}.")
    return array.astype(np.int64)


def _read_torch(path: Path) -> dict[str, Any]:
    """Read a file of `torch.save` weights-only: arrays of numbers are all that it can make."""
    try:
        with torch.serialization.safe_globals(list(NUMPY)):
            table = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a foreign or damaged file
        raise DataError(f"{path} cannot be read weights-only ({str(error).splitlines()[0]}).") from None
    if not isinstance(table, dict):
        raise DataError(f"{path} should hold a table of labels; it holds a {type(table).__name__}.")
    return table

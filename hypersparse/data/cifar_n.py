"""CIFAR-N: human labels of CIFAR's training images, and the difficulty of each image derived from them.

J. Wei et al., "Learning with Noisy Labels Revisited", ICLR 2022. Its license is CC BY-NC 4.0, so this package does
not include it. `read` takes the published files `CIFAR-10_human.pt` and `CIFAR-100_human.pt`, or an `.npz` file of
the same arrays.
"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse.data.dataset import Dataset
from hypersparse.data.files import read_file
from hypersparse.data.npz_file import read_arrays
from hypersparse.data.pickles import BYTES, LABELS, check_memo, read_pickle
from hypersparse.errors import DataError

CLEAN = "clean_label"
HUMAN = ("random_label1", "random_label2", "random_label3", "noisy_label")  # CIFAR-10N has three, CIFAR-100N the last
BEFORE_THE_OBJECT = (
    3  # pickles that precede the object in files of torch.save before 1.6: magic number, version, machine
)
LARGEST_BYTES = 1 << 26  # of the pickle; CIFAR-10N has 2.4 MB


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
    """Read a file of `torch.save`: a pickle in a zip file, or in older files a pickle after three others."""
    content = read_file(path)
    if not zipfile.is_zipfile(io.BytesIO(content)):
        check_memo(content, str(path), pickles=1 + BEFORE_THE_OBJECT)
        return read_pickle(content, str(path), kinds=(BYTES, LABELS), after=BEFORE_THE_OBJECT)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            member = next(info for info in archive.infolist() if info.filename.endswith("/data.pkl"))
            if member.file_size > LARGEST_BYTES:
                raise ValueError(f"it unpacks to {member.file_size:,} bytes")
            pickled = archive.read(member)
    except Exception as error:  # zipfile raises anything from NotImplementedError to struct.error
        raise DataError(f"{path} is not a complete file of torch.save ({error or 'it contains no pickle'}).") from error
    check_memo(pickled, str(path))
    return read_pickle(pickled, str(path), kinds=(BYTES, LABELS))

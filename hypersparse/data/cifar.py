"""`cifar10` and `cifar100`: 60,000 colour images of 32 x 32 pixels (Krizhevsky 2009)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hypersparse.data.dataset import Dataset, Progress, Split, no_options
from hypersparse.data.files import Archive, check_archive, check_sha256, locate, read_file, tar_members
from hypersparse.data.pickles import read_pickle
from hypersparse.errors import DataError

SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class CifarFiles:
    """The files of CIFAR-10 or CIFAR-100: the archive, the SHA-256 of each file, and the keys in the pickles."""

    name: str
    archive: Archive
    train: Mapping[str, str]
    test: Mapping[str, str]
    meta: Mapping[str, str]
    labels: str
    classes: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CIFAR10 = CifarFiles(
    name="cifar10",
    archive=Archive(
        file="cifar-10-python.tar.gz",
        unpacked="cifar-10-batches-py",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        size=170_498_071,
    ),
    train={
        "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
        "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
        "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
        "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
        "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
    },
    test={"test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831"},
    meta={"batches.meta": "f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb"},
    labels="labels",
    classes="label_names",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)

CIFAR100 = CifarFiles(
    name="cifar100",
    archive=Archive(
        file="cifar-100-python.tar.gz",
        unpacked="cifar-100-python",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        size=169_001_437,
    ),
    train={"train": "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b"},
    test={"test": "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864"},
    meta={"meta": "a5d4786345c961390f865e93b434dbd5c6904ce880667e0cb888c97d449f28b9"},
    labels="fine_labels",
    classes="fine_label_names",
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)


def load(
    files: CifarFiles,
    folders: Sequence[Path] = (),
    *,
    download: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """50,000 training and 10,000 test images of 10 or 100 (fine) classes, in the order of the original files.

    The digest of every file is checked.
    """
    no_options(files.name, options)
    place = locate(files.archive, folders, download=download, progress=progress)
    digests = {**files.train, **files.test, **files.meta}
    if place.is_dir():
        contents = {name: read_file(place / name) for name in digests}
    else:
        check_archive(place, files.archive)
        members = tar_members(place, [f"{files.archive.unpacked}/{name}" for name in digests])
        contents = {Path(member).name: content for member, content in members.items()}
    tables = {
        name: read_pickle(check_sha256(content, digests[name], place / name), str(place / name))
        for name, content in contents.items()
    }
    return Dataset(
        name=files.name,
        train=_split(files, [tables[name] for name in files.train]),
        test=_split(files, [tables[name] for name in files.test]),
        classes=_classes(files, [tables[name] for name in files.meta]),
        mean=files.mean,
        std=files.std,
    )


def _split(files: CifarFiles, tables: Sequence[Mapping[str, Any]]) -> Split:
    try:
        # Concatenating copies the arrays, so the tensor owns writable memory.
        pixels = np.concatenate([table["data"] for table in tables])
        images = torch.from_numpy(pixels.reshape(-1, *SHAPE))
        labels = torch.tensor([label for table in tables for label in table[files.labels]])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"A file of {files.name} does not hold `data` and `{files.labels}` ({error}).") from error
    return Split(images, labels)


def _classes(files: CifarFiles, tables: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    names = [name for table in tables for name in table.get(files.classes, [])]
    return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names)

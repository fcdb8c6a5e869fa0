"""`cifar10` and `cifar100`: 60,000 colour images of 32 x 32 pixels (Krizhevsky 2009)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hypersparse.data.dataset import Dataset, Progress, Split, no_options
from hypersparse.data.files import Archive, check_md5, locate, read_file, tar_members
from hypersparse.data.pickles import read_pickle
from hypersparse.errors import DataError

SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Files:
    """What one of the two is made of: its archive, the MD5 of each file, and the keys in the pickles."""

    name: str
    archive: Archive
    train: Mapping[str, str]
    test: Mapping[str, str]
    meta: Mapping[str, str]
    labels: str
    classes: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CIFAR10 = Files(
    name="cifar10",
    archive=Archive(
        file="cifar-10-python.tar.gz",
        unpacked="cifar-10-batches-py",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
    ),
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
    meta={"batches.meta": "5ff9c542aee3614f3951f8cda6e48888"},
    labels="labels",
    classes="label_names",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)

CIFAR100 = Files(
    name="cifar100",
    archive=Archive(
        file="cifar-100-python.tar.gz",
        unpacked="cifar-100-python",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
    ),
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    meta={"meta": "7973b15100ade9c7d40fb424638fde48"},
    labels="fine_labels",
    classes="fine_label_names",
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)

# Of CIFAR-100, by their names in its files: 20 kinds of things, five classes each.
SUPERCLASSES: Mapping[str, Sequence[str]] = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}


def load_cifar10(
    folders: Sequence[Path] = (), *, download: bool = False, progress: Progress | None = None, **options: Any
) -> Dataset:
    """50,000 training and 10,000 test images of 10 classes, in the order of the original files."""
    no_options("cifar10", options)
    return read(CIFAR10, folders, download=download, progress=progress)


def load_cifar100(
    folders: Sequence[Path] = (), *, download: bool = False, progress: Progress | None = None, **options: Any
) -> Dataset:
    """50,000 training and 10,000 test images of 100 (fine) classes, in the order of the original files."""
    no_options("cifar100", options)
    return read(CIFAR100, folders, download=download, progress=progress)


def read(files: Files, folders: Sequence[Path], *, download: bool, progress: Progress | None) -> Dataset:
    """Find the pickles or their archive, check them, and put them together."""
    place = locate(files.archive, folders, download=download, progress=progress)
    md5s = {**files.train, **files.test, **files.meta}
    if place.is_dir():
        contents = {name: read_file(place / name) for name in md5s}
    else:
        contents = _members(place, files.archive.unpacked, md5s)
    tables = {
        name: read_pickle(check_md5(content, md5s[name], place / name), str(place / name))
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


def _members(archive: Path, folder: str, names: Collection[str]) -> dict[str, bytes]:
    contents = tar_members(archive, [f"{folder}/{name}" for name in names])
    return {name: contents[f"{folder}/{name}"] for name in names}


def _split(files: Files, tables: Sequence[Mapping[str, Any]]) -> Split:
    try:
        # Concatenating copies, so that the tensor owns memory it may write to.
        pixels = np.concatenate([table["data"] for table in tables])
        images = torch.from_numpy(pixels.reshape(-1, *SHAPE))
        labels = torch.tensor([label for table in tables for label in table[files.labels]])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"A file of {files.name} does not hold `data` and `{files.labels}` ({error}).") from error
    return Split(images, labels)


def _classes(files: Files, tables: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    names = [name for table in tables for name in table.get(files.classes, [])]
    return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names)

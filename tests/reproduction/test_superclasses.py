"""The superclasses of CIFAR-100, and that they are those of its files."""

import pytest

from hypersparse.cli.load_data import data_folders
from hypersparse.data.cifar import CIFAR100
from hypersparse.data.files import locate
from hypersparse.data.pickles import read_pickle
from hypersparse.errors import DataError
from reproduction.superclasses import SUPERCLASSES


def test_superclasses_partition_the_hundred_classes() -> None:
    assert [len(names) for names in SUPERCLASSES.values()] == [5] * 20
    assert len({name for names in SUPERCLASSES.values() for name in names}) == 100


def test_superclasses_match_the_files() -> None:
    try:
        folder = locate(CIFAR100.archive, data_folders(None), download=False, progress=None)
    except DataError as error:
        pytest.skip(f"the data are not here: {error}")
    if not folder.is_dir():
        pytest.skip("CIFAR-100 is here as an archive only")
    train, meta = (read_pickle((folder / name).read_bytes(), name) for name in ("train", "meta"))
    names, kinds = (
        [name.decode() if isinstance(name, bytes) else name for name in meta[f"{level}_label_names"]]
        for level in ("fine", "coarse")
    )
    pairs = set(zip(train["coarse_labels"], train["fine_labels"], strict=True))
    found = {(kinds[kind], names[label]) for kind, label in pairs}
    assert found == {(kind, name) for kind, own in SUPERCLASSES.items() for name in own}

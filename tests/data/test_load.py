"""Of hypersparse/data/__init__.py: names, paths and what is imported."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hypersparse import data
from hypersparse.errors import DataError, OptionError


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(DataError, match="There is no data set `cifar-10`; did you mean `cifar10`"):
        data.load("cifar-10")
    with pytest.raises(DataError, match="There is no data set ``"):
        data.load("")


def test_a_missing_path_is_reported_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for path in (tmp_path / "no.npz", tmp_path / "nowhere", tmp_path / "notes.txt"):
        with pytest.raises(DataError, match=r"must be an image folder or an \.npz file"):
            data.load(str(path))


def test_paths_are_data_sets(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 4, 4), np.uint8), np.array([0, 1])
    np.savez(tmp_path / "toy.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    assert data.load(str(tmp_path / "toy.npz")).shape == (1, 4, 4)
    for part in ("train", "val"):
        (tmp_path / part / "cat").mkdir(parents=True)
        Image.new("RGB", (5, 5)).save(tmp_path / part / "cat" / "a.png")
    assert data.load(str(tmp_path), options={"size": 3}).shape == (3, 3, 3)


@pytest.mark.parametrize("name", data.names())
def test_every_reader_refuses_unknown_options(name: str) -> None:
    with pytest.raises(OptionError, match="chanels"):
        data.load(name, options={"chanels": 1}, download=False)


def test_arguments_are_not_options() -> None:
    with pytest.raises(OptionError, match="`download` is not an option"):
        data.load("digits", options={"download": True})


@pytest.mark.slow
def test_importing_loads_neither_sklearn_nor_pillow() -> None:
    code = "import sys, hypersparse.data; print(*sorted({'PIL', 'sklearn', 'scipy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

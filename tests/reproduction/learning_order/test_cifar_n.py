"""CIFAR-N in its forms, wrong files, and the published counts where the labels are at hand."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hypersparse.data.dataset import Dataset, Split
from hypersparse.errors import DataError
from reproduction.learning_order import cifar_n

CLEAN = np.array([0, 1, 2, 3], dtype=np.int64)
TABLE = {
    "clean_label": CLEAN,
    "worse_label": np.array([0, 2, 0, 0]),
    "random_label1": np.array([0, 2, 0, 0]),
    "random_label2": np.array([0, 1, 0, 1]),
    "random_label3": np.array([0, 1, 2, 300]),  # above a byte
}
BESIDE = Path(__file__).parents[4] / "shared" / "data" / "cifarn"  # of a checkout
HUMAN = Path(os.environ.get("HYPERSPARSE_CIFAR_N", BESIDE)) / "cifar10n.npz"


def dataset(labels: list[int]) -> Dataset:
    split = Split(torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), torch.tensor(labels))
    return Dataset("tiny", split, split, ("a", "b", "c", "d"), (0.5,), (0.5,))


@pytest.mark.parametrize("zipped", [True, False])
def test_reads_what_torch_saved(tmp_path: Path, zipped: bool) -> None:
    torch.save(TABLE, tmp_path / "human.pt", _use_new_zipfile_serialization=zipped)
    human = cifar_n.read(tmp_path / "human.pt")
    assert human.hardness.tolist() == [0, 1, 2, 3]
    assert human.human[2].tolist() == [0, 1, 2, 300]
    assert human.people == 3


def test_reads_npz_and_cifar_100(tmp_path: Path) -> None:
    np.savez(tmp_path / "human.npz", clean_label=CLEAN.astype(np.uint8), noisy_label=np.array([0, 0, 2, 2]))
    human = cifar_n.read(tmp_path / "human.npz")
    assert (human.people, human.hardness.tolist()) == (1, [0, 1, 0, 1])


def test_the_clean_labels_must_match_the_data_set(tmp_path: Path) -> None:
    torch.save(TABLE, tmp_path / "human.pt")
    human = cifar_n.read(tmp_path / "human.pt")
    human.check(dataset([0, 1, 2, 3]))
    with pytest.raises(DataError, match="differ from the data set's in 2 of 4 images"):
        human.check(dataset([0, 1, 3, 2]))
    with pytest.raises(DataError, match="it labels 4 images and tiny has 3"):
        human.check(dataset([0, 1, 2]))


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_a_file_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"clean_label": Hostile()}, "human.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match="cannot be read weights-only"):
        cifar_n.read("human.pt")
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"labels": CLEAN}, "is not CIFAR-N"),
        ({"clean_label": CLEAN, "noisy_label": CLEAN[:2]}, "differ in length"),
        (
            {"clean_label": CLEAN, "noisy_label": CLEAN.astype(float)},
            "cannot be read weights-only|must be a 1-D array of integers",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, table: dict[str, Any], words: str) -> None:
    torch.save(table, tmp_path / "human.pt")
    with pytest.raises(DataError, match=words):
        cifar_n.read(tmp_path / "human.pt")


def test_damaged_and_missing_files_raise_an_error(tmp_path: Path) -> None:
    for name, content in (("a.pt", b"nothing"), ("b.npz", b"nothing"), ("c.pt", pickle.dumps({}))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError):
            cifar_n.read(tmp_path / name)
    with pytest.raises(DataError, match="There is no file"):
        cifar_n.read(tmp_path / "none.pt")


@pytest.mark.slow
@pytest.mark.skipif(not HUMAN.is_file(), reason=f"CIFAR-10N is not at {HUMAN} (set HYPERSPARSE_CIFAR_N to its folder)")
def test_the_published_labels_have_the_known_hardness() -> None:
    human = cifar_n.read(HUMAN)
    assert np.bincount(human.hardness).tolist() == [29896, 14777, 4260, 1067]
    by_class = {
        0: [3251, 1298, 346, 105],
        1: [2961, 1707, 306, 26],
        2: [3160, 1364, 379, 97],
        3: [2436, 1554, 710, 300],
        4: [2441, 1596, 756, 207],
        5: [2901, 1553, 439, 107],
        6: [2968, 1533, 420, 79],
        7: [3608, 1168, 185, 39],
        8: [3417, 1340, 199, 44],
        9: [2753, 1664, 520, 63],
    }
    for label, counts in by_class.items():
        assert np.bincount(human.hardness[human.clean == label], minlength=4).tolist() == counts

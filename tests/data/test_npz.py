import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hypersparse.data import npz
from hypersparse.errors import DataError, OptionError
from tests.fuzz.fuzz_npz import fuzz


def write(path: Path, **changes: Any) -> Path:
    """Four training and two test images of 6 x 5 pixels, two classes."""
    arrays: dict[str, Any] = {
        "x_train": np.arange(120, dtype=np.uint8).reshape(4, 6, 5),
        "y_train": np.array([0, 1, 0, 1]),
        "x_test": np.zeros((2, 6, 5), np.uint8),
        "y_test": np.array([1, 0], np.uint8),
    }
    arrays.update(changes)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_grey_images_get_a_channel(tmp_path: Path) -> None:
    data = npz.read(write(tmp_path / "toy.npz"))
    assert (data.name, data.shape, data.classes) == ("toy", (1, 6, 5), ("0", "1"))
    assert data.train.images.dtype == torch.uint8
    assert data.train.labels.tolist() == [0, 1, 0, 1]
    assert data.mean == pytest.approx((59.5 / 255,))


@pytest.mark.parametrize("shape", [(6, 5, 3), (3, 6, 5)])
def test_channels_may_come_first_or_last(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = np.zeros((4, *shape), np.uint8)
    images[0, -1, -1, -1] = 7
    path = write(tmp_path / "toy.npz", x_train=images, x_test=images[:2])
    data = npz.read(path)
    assert data.shape == (3, 6, 5)
    assert int(data.train.images[0, 2, 5, 4]) == 7


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
def test_other_numbers_become_unscaled_float32(tmp_path: Path, kind: Any) -> None:
    rows = np.array([[1, 2], [3, 2], [1, 2], [3, 2]], kind)
    data = npz.read(write(tmp_path / "toy.npz", x_train=rows, x_test=rows[:2]))
    assert data.train.images.dtype == torch.float32
    assert (data.shape, data.mean, data.std) == ((2,), (2.0, 2.0), (1.0, 1.0))


def test_the_other_names_class_names_and_label_columns(tmp_path: Path) -> None:
    arrays = dict(np.load(write(tmp_path / "toy.npz")))
    renamed = {alias: arrays[name] for alias, name in npz.ALIASES.items()}
    renamed["train_labels"] = renamed["train_labels"][:, None]
    np.savez(tmp_path / "other.npz", classes=np.array(["cat", "dog", "eel"]), **renamed)
    data = npz.read(tmp_path / "other.npz")
    assert data.classes == ("cat", "dog", "eel")
    assert data.train.labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "has no array `y_test`; it has: x_test, x_train, y_train"),
        ({"y_train": np.array([0.0, 1.0, 0.0, 1.0])}, "must be integers"),
        ({"y_train": np.array([0, 2, 0, 2])}, r"every label 0\.\.K-1 .*2 distinct labels in 0\.\.2"),
        ({"y_test": np.array([0, -1])}, r"must be in 0\.\.1; got -1\.\.0"),
        ({"y_train": np.array([0, 1])}, "4 images but 2 labels"),
        ({"x_train": np.array(["a", "b", "c", "d"])}, "must be numbers"),
        ({"x_train": np.zeros(4)}, "2, 3 or 4 axes"),
        ({"x_train": np.full((4, 6, 5), np.nan), "x_test": np.zeros((2, 6, 5))}, "NaN"),
        ({"x_train": np.zeros((4, 6, 5)), "x_test": np.full((2, 6, 5), 1e300)}, "2 test images of toy hold NaN or inf"),
        ({"y_train": np.array([0, 1, 0, 2**64 - 1], np.uint64)}, r"distinct labels in -1\.\.1"),
        ({"y_train": np.zeros((4, 2), int)}, r"1-D array; got the shape \[4, 2\]"),
        ({"classes": np.zeros(2)}, "`classes` must be at most 1048576 names; got 2 of float64"),
        ({"classes": np.array(["a", "b\x1b[2J"])}, "must be printable names"),
        ({"x_train": np.zeros((0, 6, 5), np.uint8)}, "images with pixels"),
        ({"x_test": np.zeros((2, 9, 9), np.uint8)}, "the same type and shape"),
        ({"x_train": np.array([print] * 4, dtype=object)}, "plain arrays"),
    ],
)
def test_unusable_arrays_raise_an_error_with_the_path(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "toy.npz", **changes)
    with pytest.raises(DataError, match=message) as caught:
        npz.read(path)
    assert str(path) in str(caught.value)


def test_damaged_files_are_detected(tmp_path: Path) -> None:
    path = write(tmp_path / "toy.npz")
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[content.index(bytes(range(50, 60)))] ^= 1
    for damaged in (bytes(flipped), content[:-30], content[:300], b"", b"text", pickled()):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"toy\.npz is not a complete \.npz file"):
            npz.read(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    path.with_suffix(".npy").rename(path)
    with pytest.raises(DataError, match="single array"):
        npz.read(path)


def pickled() -> bytes:
    import pickle

    return pickle.dumps({"x_train": 1})


def test_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no options; got `size`"):
        npz.read(write(tmp_path / "toy.npz"), size=3)


def test_shapes_are_checked_before_decompression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def expanded(*given: object) -> None:
        raise AssertionError(given)

    monkeypatch.setattr("hypersparse.data.npz_file._array", expanded)
    for changes, message in (
        ({"y_train": np.array([0, 1])}, "2 labels"),
        ({"x_test": np.zeros((2, 9))}, "the same type and shape"),
    ):
        with pytest.raises(DataError, match=message):
            npz.read(write(tmp_path / "toy.npz", **changes))


def test_a_decompression_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    np.savez_compressed(path, x_train=np.zeros((2000, 300, 300), np.uint8))
    assert path.stat().st_size < 2**18
    with pytest.raises(DataError, match=r"would expand to 180000128, above .* without compression"):
        npz.read(path)


def patched(path: Path, mark: bytes, place: int, value: bytes) -> Path:
    """The file with other bytes at a place behind a mark: in a header of the zip, or in an array."""
    content = write(path).read_bytes()
    if mark.startswith(b"PK"):
        path.write_bytes(replaced(content, mark, place, value))
        return path
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(path, "w") as after:
        for name in before.namelist():
            changes = name == "x_train.npy"
            after.writestr(name, replaced(before.read(name), mark, place, value) if changes else before.read(name))
    return path


def replaced(content: bytes, mark: bytes, place: int, value: bytes) -> bytes:
    at = content.index(mark) + place
    return content[:at] + value + content[at + len(value) :]


@pytest.mark.parametrize(
    ("mark", "place", "value", "message"),
    [
        (b"PK\x01\x02", 6, b"\x63\0", r"zip file version 9\.9"),
        (b"PK\x01\x02", 8, b"\1\0", "`x_train` is encrypted"),
        (b"PK\x01\x02", 10, b"\x63\0", "uses the compression method 99"),
        (b"PK\x01\x02", 24, b"\0\0\0\x70", "would expand to 18790"),
        (
            b"'shape': (4, 6, 5)",
            9,
            b"(1099511627776,), }",
            r"claims the shape \(1099511627776,\) of uint8 in 248 bytes",
        ),
        (b"'shape': (4, 6, 5)", 9, b"(9**9,3) ", "malformed node"),
        (b"'shape': (4, 6, 5)", 9, b"(9, 6, 5)", r"claims the shape \(9, 6, 5\) of uint8 in 248 bytes"),
        (b"\x93NUMPY", 6, b"\3\0", r"has the version \(3, 0\)"),
    ],
)
def test_false_headers_are_refused(tmp_path: Path, mark: bytes, place: int, value: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        npz.read(patched(tmp_path / "toy.npz", mark, place, value))
    assert "\n" not in str(caught.value)


def test_the_first_cases_of_the_fuzzer(tmp_path: Path) -> None:
    counts, findings = fuzz(range(60), tmp_path)
    assert findings == []
    assert counts["read"] > 5
    assert counts["refused"] > 20

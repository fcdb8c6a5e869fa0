import hashlib
import pickle
import tarfile
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypersparse.data import tiny_imagenet
from hypersparse.data.cifar import CIFAR10, CIFAR100, CifarFiles, load
from hypersparse.data.dataset import Dataset
from hypersparse.errors import DataError, OptionError


def batch(first: int, labels: list[int], key: str) -> dict[bytes, Any]:
    """Image number i has the red value i in its first pixel, the green value 100 + i, the blue 200 + i."""
    pixels = np.zeros((len(labels), 3, 32, 32), np.uint8)
    for index in range(len(labels)):
        pixels[index, :, 0, 0] = (first + index, 100 + first + index, 200 + first + index)
    return {b"data": pixels.reshape(-1, 3072), key.encode(): labels, b"filenames": [b"x.png"] * len(labels)}


def write_fake(folder: Path, files: CifarFiles) -> CifarFiles:
    """Small files with the names and keys of the real ones; returns the table with their checksums."""
    place = folder / files.archive.unpacked
    place.mkdir(parents=True)
    tables: dict[str, Any] = {}
    for number, name in enumerate([*files.train, *files.test]):
        tables[name] = batch(2 * number, [number % 2, 1], files.labels)
    names = [b"cat", b"dog"]
    tables.update({name: {files.classes.encode(): names} for name in files.meta})
    digests = {}
    for name, table in tables.items():
        content = pickle.dumps(table, protocol=3)
        (place / name).write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
    train, test, meta = ({name: digests[name] for name in part} for part in (files.train, files.test, files.meta))
    return replace(files, train=train, test=test, meta=meta)


def load_offline(files: CifarFiles, *folders: Path) -> Dataset:
    return load(files, folders)


@pytest.mark.parametrize("files", [CIFAR10, CIFAR100], ids=lambda files: files.name)
def test_images_keep_the_order_of_the_files(tmp_path: Path, files: CifarFiles) -> None:
    data = load_offline(write_fake(tmp_path, files), tmp_path)
    count = 2 * len(files.train)
    assert data.shape == (3, 32, 32)
    assert data.train.images[:, :, 0, 0].tolist() == [[i, 100 + i, 200 + i] for i in range(count)]
    assert data.test.images[:, 0, 0, 0].tolist() == [count, count + 1]
    assert data.train.labels.tolist()[:2] == [0, 1]
    assert (data.name, data.classes, data.mean) == (files.name, ("cat", "dog"), files.mean)


def test_images_are_normalised_as_in_the_authors_code() -> None:
    """Not by the deviation over all pixels of CIFAR-10, which is 0.247 in the first channel: results depend on it."""
    assert (CIFAR10.mean, CIFAR10.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert (CIFAR100.mean, CIFAR100.std) == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
    rounded = [[round(number, 6) for number in numbers] for numbers in (tiny_imagenet.MEAN, tiny_imagenet.STD)]
    assert rounded == [[0.480246, 0.448072, 0.397548], [0.276986, 0.269064, 0.282082]]


def test_the_archive_and_the_folder_contain_the_same_images(tmp_path: Path) -> None:
    files = write_fake(tmp_path / "unpacked", CIFAR10)
    place = tmp_path / "packed"
    place.mkdir()
    with tarfile.open(place / files.archive.file, "w:gz") as archive:
        archive.add(tmp_path / "unpacked" / files.archive.unpacked, files.archive.unpacked)
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz is not the published archive"):
        load_offline(files, place)
    digest = hashlib.sha256((place / files.archive.file).read_bytes()).hexdigest()
    files = replace(files, archive=replace(files.archive, sha256=digest))
    unpacked, packed = load_offline(files, tmp_path / "unpacked"), load_offline(files, place)
    assert packed.train.images.equal(unpacked.train.images)
    assert packed.train.labels.equal(unpacked.train.labels)
    assert packed.classes == unpacked.classes
    assert [entry.name for entry in place.iterdir()] == [files.archive.file]


def test_a_truncated_or_altered_file_is_named(tmp_path: Path) -> None:
    files = write_fake(tmp_path, CIFAR10)
    victim = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    content = victim.read_bytes()
    victim.write_bytes(content[:-100])
    with pytest.raises(DataError, match="data_batch_3 is truncated or altered"):
        load_offline(files, tmp_path)
    victim.write_bytes(content[:500] + b"!" + content[501:])
    with pytest.raises(DataError, match="data_batch_3 is truncated or altered"):
        load_offline(files, tmp_path)
    victim.unlink()
    with pytest.raises(DataError, match="data_batch_3 cannot be read"):
        load_offline(files, tmp_path)


def test_the_published_digests_refuse_other_files(tmp_path: Path) -> None:
    write_fake(tmp_path, CIFAR100)
    with pytest.raises(DataError, match="cifar-100-python/train is truncated or altered"):
        load(CIFAR100, [tmp_path])


def test_contents_of_the_wrong_form_are_refused(tmp_path: Path) -> None:
    files = replace(write_fake(tmp_path, CIFAR100), labels="coarse_labels")
    with pytest.raises(DataError, match="does not hold `data` and `coarse_labels`"):
        load_offline(files, tmp_path)


@pytest.mark.parametrize("files", [CIFAR10, CIFAR100], ids=lambda files: files.name)
def test_without_files_and_network_the_error_gives_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: CifarFiles
) -> None:
    def fail(url: str, timeout: float) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", fail)
    with pytest.raises(
        DataError, match=f"{files.archive.file} was not found and could not be .*Put {files.archive.file} or"
    ):
        load(files, [tmp_path], download=True)
    with pytest.raises(OptionError, match="no options"):
        load(files, [tmp_path], coarse=True)

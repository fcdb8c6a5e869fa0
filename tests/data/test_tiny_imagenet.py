import hashlib
import shutil
import urllib.error
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hypersparse.data import tiny_imagenet
from hypersparse.data.dataset import Dataset
from hypersparse.errors import DataError, OptionError

WNIDS = ("n02", "n01", "n03")  # the real file is not sorted either


def shade(wnid: str, number: int) -> int:
    return 60 * WNIDS.index(wnid) + 20 * number


def write_jpeg(path: Path, value: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (64, 64), value).convert(mode).save(path, quality=95)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes with two training images each, one of them grey, and three validation images."""
    root = tmp_path / "tiny-imagenet-200"
    for wnid in WNIDS:
        for number in range(2):
            mode = "L" if (wnid, number) == ("n03", 1) else "RGB"
            write_jpeg(root / f"train/{wnid}/images/{wnid}_{number}.JPEG", shade(wnid, number), mode)
        (root / f"train/{wnid}/{wnid}_boxes.txt").write_text("n02_0.JPEG\t0\t0\t62\t62\n")
    rows = []
    for number, wnid in enumerate(("n03", "n01", "n02")):
        write_jpeg(root / f"val/images/val_{number}.JPEG", shade(wnid, 2))
        rows.append(f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    (root / "val/val_annotations.txt").write_text("".join(reversed(rows)))
    (root / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    (root / "words.txt").write_text("n01\tcat\n")
    write_jpeg(root / "test/images/test_0.JPEG", 9)
    return tmp_path


def rearrange(folder: Path, pattern: str) -> None:
    val = folder / "tiny-imagenet-200/val"
    for number, wnid in enumerate(("n03", "n01", "n02")):
        target = val / pattern.format(wnid=wnid) / f"val_{number}.JPEG"
        target.parent.mkdir(parents=True)
        (val / f"images/val_{number}.JPEG").rename(target)


def publish(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Have this archive be the one of the data set's authors."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(tiny_imagenet, "ARCHIVE", replace(tiny_imagenet.ARCHIVE, sha256=digest))


def pack(folder: Path) -> Path:
    path = folder / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((folder / "tiny-imagenet-200").rglob("*")):
            archive.write(file, file.relative_to(folder))
    shutil.rmtree(folder / "tiny-imagenet-200")
    return path


def assert_train_is_right(data: Dataset) -> None:
    assert (data.classes, data.shape) == (("n01", "n02", "n03"), (3, 64, 64))
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    expected = [shade(wnid, number) for wnid in data.classes for number in range(2)]
    assert data.train.images[:, :, 5, 5].tolist() == [[value] * 3 for value in expected]


def test_the_official_folder(folder: Path) -> None:
    data = tiny_imagenet.load([folder])
    assert_train_is_right(data)
    assert data.test.labels.tolist() == [2, 0, 1]
    assert data.test.images[:, 0, 0, 0].tolist() == [shade(wnid, 2) for wnid in ("n03", "n01", "n02")]
    assert (data.mean, data.std) == (tiny_imagenet.MEAN, tiny_imagenet.STD)


@pytest.mark.parametrize("pattern", ["{wnid}/images", "{wnid}"])
def test_the_rearranged_val_folder(folder: Path, pattern: str) -> None:
    rearrange(folder, pattern)
    data = tiny_imagenet.load([folder])
    assert_train_is_right(data)
    assert data.test.labels.tolist() == [0, 1, 2]


def test_the_zip_is_read_without_unpacking_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(folder)
    with pytest.raises(DataError, match=r"tiny-imagenet-200\.zip is not the published archive"):
        tiny_imagenet.load([folder])
    publish(monkeypatch, path)
    cache = folder / "cache"
    data = tiny_imagenet.load([folder, cache])
    assert_train_is_right(data)
    assert data.test.labels.tolist() == [2, 0, 1]
    assert [file.name for file in cache.iterdir()] == [tiny_imagenet.CACHE]
    assert sorted(file.name for file in folder.iterdir()) == ["cache", "tiny-imagenet-200.zip"]


def count_decodings(folders: list[Path]) -> int:
    """How many images `load` had to decode."""
    reports: list[int] = []
    assert_train_is_right(tiny_imagenet.load(folders, progress=lambda text, done, total: reports.append(done)))
    return sum(reports)


def test_images_are_decoded_once(folder: Path) -> None:
    assert count_decodings([folder]) == 9
    assert count_decodings([folder]) == 0
    shutil.rmtree(folder / "tiny-imagenet-200")
    assert count_decodings([folder]) == 0  # the cache alone is enough


def test_a_damaged_or_foreign_cache_is_replaced(folder: Path) -> None:
    tiny_imagenet.load([folder])
    cache = folder / tiny_imagenet.CACHE
    content = cache.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged in (bytes(flipped), content[:-1000], b""):
        cache.write_bytes(damaged)
        assert count_decodings([folder]) == 9
        assert count_decodings([folder]) == 0
    np.savez(cache, x_train=np.zeros(3))
    assert count_decodings([folder]) == 9


def test_changed_files_are_decoded_again(folder: Path) -> None:
    tiny_imagenet.load([folder])
    rearrange(folder, "{wnid}")
    assert tiny_imagenet.load([folder]).test.labels.tolist() == [0, 1, 2]


def test_an_incomplete_archive_is_detected(folder: Path) -> None:
    root = folder / "tiny-imagenet-200"
    (root / "train/n01/images/n01_1.JPEG").unlink()
    with pytest.raises(DataError, match="incomplete: train has 1 images of n01 but 2 of n0"):
        tiny_imagenet.load([folder])
    shutil.rmtree(root / "train/n01")
    with pytest.raises(DataError, match="incomplete: n01 is not both a class and a folder or label in train"):
        tiny_imagenet.load([folder])
    shutil.rmtree(root / "train")
    with pytest.raises(DataError, match="no images in train"):
        tiny_imagenet.load([folder])


def test_val_must_fit_its_annotations(folder: Path) -> None:
    val = folder / "tiny-imagenet-200/val"
    (val / "images/val_1.JPEG").rename(val / "images/val_7.JPEG")
    with pytest.raises(DataError, match=r"val/images/val_1\.JPEG is not both a file and a row"):
        tiny_imagenet.load([folder])
    (val / "val_annotations.txt").unlink()
    with pytest.raises(DataError, match=r"has no val/val_annotations\.txt"):
        tiny_imagenet.load([folder])


def test_without_wnids_the_training_folders_are_the_classes(folder: Path) -> None:
    (folder / "tiny-imagenet-200/wnids.txt").unlink()
    assert_train_is_right(tiny_imagenet.load([folder]))


def test_a_broken_image_or_zip_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = folder / "tiny-imagenet-200/train/n01/images/n01_1.JPEG"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-60])
    with pytest.raises(DataError, match=r"n01_1\.JPEG cannot be read as an image"):
        tiny_imagenet.load([folder])
    victim.write_bytes(whole)
    path = pack(folder)
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[content.index(whole) + len(whole) // 2] ^= 1
    for bad in (bytes(damaged), content[:-100]):
        path.write_bytes(bad)
        publish(monkeypatch, path)
        with pytest.raises(DataError, match=r"tiny-imagenet-200\.zip is truncated or damaged"):
            tiny_imagenet.load([folder])


def test_an_archive_is_checked_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, pack(folder))
    tiny_imagenet.load([folder])

    def again(path: Path, archive: object) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(tiny_imagenet, "check_archive", again)
    assert_train_is_right(tiny_imagenet.load([folder]))


def test_images_and_members_of_other_sizes_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (folder / "tiny-imagenet-200").rglob("*.JPEG"):
        Image.new("RGB", (640, 64)).save(path)
    with pytest.raises(DataError, match=r"n01_0.JPEG in .* must have the shape \(3, 64, 64\); got \(3, 64, 640\)"):
        tiny_imagenet.load([folder])
    publish(monkeypatch, pack(folder))
    monkeypatch.setattr(tiny_imagenet, "LARGEST_MEMBER_BYTES", 10)
    with pytest.raises(DataError, match=r"claims \d+ bytes"):
        tiny_imagenet.load([folder])


@pytest.mark.parametrize("field", [b"\x63\x00", b"\x01\x00"], ids=["version", "encryption"])
def test_an_unsupported_zip_raises_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch, field: bytes) -> None:
    path = pack(folder)
    place = 6 if field[0] == 0x63 else 8
    first, *others = path.read_bytes().split(b"PK\x01\x02")  # before the entries of its directory
    changed = [entry[: place - 4] + field + entry[place - 2 :] for entry in others]
    path.write_bytes(b"PK\x01\x02".join([first, *changed]))
    publish(monkeypatch, path)
    with pytest.raises(DataError, match=r"tiny-imagenet-200\.zip is truncated or damaged"):
        tiny_imagenet.load([folder])


def test_a_cache_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(DataError, match=r"could not be written to .*free disk space, or pass another folder"):
        tiny_imagenet.load([folder, folder / "file"])


def test_without_files_and_network_the_error_gives_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str, timeout: float) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", fail)
    with pytest.raises(DataError, match=r"could not be downloaded .*Put tiny-imagenet-200\.zip or"):
        tiny_imagenet.load([tmp_path], download=True)
    with pytest.raises(OptionError, match="no options"):
        tiny_imagenet.load([tmp_path], size=32)


def test_cyclic_links_are_followed_once(folder: Path) -> None:
    for name in ("one", "other"):
        (folder / "tiny-imagenet-200" / "val" / name).symlink_to(folder)
    assert_train_is_right(tiny_imagenet.load([folder]))

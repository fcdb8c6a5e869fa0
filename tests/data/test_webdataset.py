"""Shards of WebDataset, written by its own library: found by their headers, read where they lie."""

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
import webdataset

from hypersparse import data
from hypersparse.data import webdataset as reader
from hypersparse.data.shards import FileRanges
from hypersparse.errors import DataError
from tests.data.pictures import encoded

TRAIN, TEST, SHARD = 22, 6, 8


def write_shards(folder: Path, *, label: str = "cls", train: int = TRAIN, size: tuple[int, int] = (12, 12)) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, count, first in (("train", train, 0), ("val", TEST, train)):
        for start in range(0, count, SHARD):
            with webdataset.TarWriter(str(folder / f"pictures-{part}-{start // SHARD:06}.tar")) as out:
                for number in range(start, min(start + SHARD, count)):
                    given = {"label": number % 3, "caption": "a picture"} if label == "json" else number % 3
                    out.write({"__key__": f"{number:05}", "png": encoded(first + number, size), label: given})
    return folder


@pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO")  # which the library leaves open
@pytest.mark.parametrize("label", ["cls", "json"])
def test_the_samples_are_those_of_the_library(tmp_path: Path, label: str) -> None:
    found = data.load(str(write_shards(tmp_path / "pictures", label=label)))
    assert (found.name, found.shape, found.classes) == ("pictures", (3, 12, 12), ("0", "1", "2"))
    shards = sorted(str(path) for path in (tmp_path / "pictures").glob("*train*.tar"))
    assert len(shards) == 3
    samples = list(webdataset.WebDataset(shards, shardshuffle=False, empty_check=False).decode("torchrgb8"))
    assert len(samples) == len(found.train) == TRAIN
    wanted = torch.stack([sample["png"] for sample in samples])
    assert found.train.images.equal(wanted)
    assert found.train.labels.tolist() == [s[label]["label"] if label == "json" else s[label] for s in samples]
    assert found.train.read(torch.tensor([20, 3])).equal(wanted[[20, 3]])


def test_names_of_classes_are_beside_the_shards(tmp_path: Path) -> None:
    (write_shards(tmp_path) / "classnames.txt").write_text("cat\ndog\neel\n")
    assert data.load(str(tmp_path)).classes == ("cat", "dog", "eel")
    (tmp_path / "classnames.txt").write_text("cat\ndog\n")
    with pytest.raises(DataError, match=r"The train labels must be in 0\.\.1; got 0\.\.2"):
        data.load(str(tmp_path))


def test_splits_can_be_folders(tmp_path: Path) -> None:
    write_shards(tmp_path / "flat")
    for part in ("train", "val"):
        (tmp_path / "deep" / part).mkdir(parents=True)
        for number, shard in enumerate(sorted((tmp_path / "flat").glob(f"*{part}*.tar"))):
            shard.rename(tmp_path / "deep" / part / f"{number:04}.tar")
    assert len(data.load(str(tmp_path / "deep")).train) == TRAIN


def test_a_split_of_shards_can_be_sent_to_a_process_and_names_its_images(tmp_path: Path) -> None:
    split: Any = data.load(str(write_shards(tmp_path))).train
    assert pickle.loads(pickle.dumps(split)).images.equal(split.images)
    assert split.source.name(9) == f"image 1 of {tmp_path / 'pictures-train-000001.tar'}"
    (tmp_path / "pictures-train-000001.tar").write_bytes(b"")
    with pytest.raises(DataError, match="has become shorter; start again"):
        split.read(torch.tensor([9]))


def put(path: Path, members: dict[str, bytes], **fields: Any) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in fields.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return path


def shard_of(tmp_path: Path, members: dict[str, bytes], **fields: Any) -> list[Any]:
    return [column.tolist() for column in reader._samples_of(put(tmp_path / "train.tar", members, **fields))]


def test_other_files_of_a_sample_and_of_macos_are_left_out(tmp_path: Path) -> None:
    members = {"a/1.txt": b"words", "a/1.jpg": b"image", "a/1.seg.png": b"mask", "a/1.cls": b"7\n", "a/._1.jpg": b"?",
               "b/1.cls": b"0", "b/1.JPEG": b"other image", "c/2.txt": b"no image"}  # fmt: skip
    _, sizes, labels = shard_of(tmp_path, members)
    assert (sizes, labels) == ([5, 11], [7, 0])


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"1.jpg": b"image"}, "has the image `1` and no `1.cls` or `1.json` with its label"),
        ({"1.jpg": b"image", "1.cls": b"cat"}, "1.cls in .* should hold the number of a class; it holds 'other text'"),
        ({"1.jpg": b"image", "1.cls": b"9" * 5000}, "should hold the number of a class"),
        ({"1.jpg": b"image", "1.cls": b"[" * 100_000}, "should hold the number of a class"),
        ({"1.jpg": b"image", "1.json": b'{"label": "cat"}'}, "it holds 'cat'"),
    ],
)
def test_a_sample_without_a_class_is_said(tmp_path: Path, members: dict[str, bytes], said: str) -> None:
    with pytest.raises(DataError, match=said):
        shard_of(tmp_path, members)


def test_empty_images_and_empty_shards_are_said(tmp_path: Path) -> None:
    for part in ("train", "val"):
        put(tmp_path / f"{part}.tar", {"1.jpg": b"", "1.cls": b"0"})
    with pytest.raises(DataError, match=r"image 0 of .*train\.tar has 0 bytes"):
        data.load(str(tmp_path))
    put(tmp_path / "train.tar", {"1.cls": b"0"})
    with pytest.raises(DataError, match=r"has no images in train\.tar"):
        data.load(str(tmp_path))


def header(size: bytes, kind: bytes = b"0", name: bytes = b"1.jpg") -> bytes:
    """A tar header with a size that tarfile would not write."""
    fields = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.USTAR_FORMAT))
    fields[124:136], fields[156:157] = size, kind
    total = sum(fields[:148]) + 8 * 32 + sum(fields[156:512])
    fields[148:156] = f"{total:06o}\0 ".encode()
    return bytes(fields)


BACKWARDS = b"\xff" * 10 + b"\xfc\x00"  # -1024, for which old versions of tarfile never end
HUGE = b"\x80" + b"\x00" * 6 + b"\x01" + b"\x00" * 4  # 4 GiB


@pytest.mark.parametrize("kind", [b"0", b"x", b"L"])
@pytest.mark.parametrize("size", [BACKWARDS, HUGE])
def test_sizes_that_cannot_be_end_at_once(tmp_path: Path, kind: bytes, size: bytes) -> None:
    place = tmp_path / "train.tar"
    place.write_bytes(header(size, kind) + b"\0" * 2048)
    with pytest.raises(DataError, match="is truncated, damaged or compressed"):
        reader._samples_of(place)


def test_compressed_shards_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "train.tar"
    with tarfile.open(place, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("1.jpg"))
    with pytest.raises(DataError, match="an uncompressed tar file was expected"):
        reader._samples_of(place)


def test_ranges_are_checked_when_they_are_made(tmp_path: Path) -> None:
    import numpy as np

    files = [tmp_path / "a.tar"]
    with pytest.raises(DataError, match=r"image 1 of .*a\.tar has 1099511627776 bytes; 1 to"):
        FileRanges(files, np.zeros(2, np.int32), np.zeros(2, np.int64), np.array([1, 2**40]))


def test_json_of_a_sample_may_have_no_label_where_another_file_has(tmp_path: Path) -> None:
    members = {"1.json": json.dumps({"width": 4}).encode(), "1.jpg": b"image", "1.cls": b"2"}
    assert shard_of(tmp_path, members)[2] == [2]

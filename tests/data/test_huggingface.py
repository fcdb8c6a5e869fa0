"""Folders written by Hugging Face `datasets`: Arrow files are read in place, Parquet files through a copy."""

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.errors import DataError, OptionError
from tests.data.pictures import encoded
from tests.fuzz import fuzz_shards

CLASSES = ["cat", "dog", "eel"]
TRAIN, TEST = 20, 6
FEATURES = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})


def rows(count: int, first: int = 0) -> dict[str, list[Any]]:
    images = [{"bytes": encoded(first + number), "path": None} for number in range(count)]
    return {"image": images, "label": [number % len(CLASSES) for number in range(count)]}


def table(count: int, first: int = 0) -> Any:
    return datasets.Dataset.from_dict(rows(count, first), features=FEATURES)


def both() -> Any:
    return datasets.DatasetDict({"train": table(TRAIN), "validation": table(TEST, TRAIN), "test": table(3)})


@pytest.fixture
def arrow(tmp_path: Path) -> Path:
    both().save_to_disk(tmp_path / "pictures", num_shards={"train": 3, "validation": 1, "test": 1})
    return tmp_path / "pictures"


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    place = tmp_path / "pictures" / "data"
    place.mkdir(parents=True)
    for name, part in both().items():
        part.to_parquet(place / f"{name}-00000-of-00001.parquet", batch_size=7)
    return tmp_path / "pictures"


def load(path: Path, **options: Any) -> Dataset:
    return data.load(str(path), [path.parent / "cache"], options=options)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_both_kinds_hold_the_images_of_the_library(kind: str, request: pytest.FixtureRequest) -> None:
    found = load(request.getfixturevalue(kind))
    assert (found.name, found.classes, found.shape) == ("pictures", tuple(CLASSES), (3, 12, 12))
    assert found.train.labels.tolist() == [number % 3 for number in range(TRAIN)]
    for split, part in ((found.train, both()["train"]), (found.test, both()["validation"])):
        wanted = np.stack([np.asarray(row["image"].convert("RGB")) for row in part]).transpose(0, 3, 1, 2)
        assert split.images.numpy().tobytes() == wanted.tobytes()
        assert split.read(torch.tensor([4, 1])).equal(split.images[[4, 1]])


def test_parquet_files_are_copied_once_until_they_change(parquet: Path) -> None:
    load(parquet)
    cache = parquet.parent / "cache"
    before = {file: file.stat().st_mtime_ns for file in cache.iterdir()}
    load(parquet)
    assert {file: file.stat().st_mtime_ns for file in cache.iterdir()} == before
    assert len(before) == 2
    table(5).to_parquet(parquet / "data/train-00000-of-00001.parquet")
    assert len(load(parquet).train) == 5
    with pytest.raises(DataError, match="copied to an Arrow file once; pass a folder"):
        data.load(str(parquet))


def test_images_are_cropped_and_resized_as_those_in_files(arrow: Path) -> None:
    found = load(arrow, size=8, augment="random-resized-crop")
    assert found.shape == (3, 8, 8)
    assert not found.train.read(torch.arange(3), "seed").equal(found.train.read(torch.arange(3)))


def write(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        pq.write_table(pa.table(columns), folder / f"{part}.parquet", **options)
    return folder


def test_files_of_other_programs_need_names_only_where_it_is_unclear(tmp_path: Path) -> None:
    images = [encoded(number) for number in range(4)]
    plain = write(tmp_path / "plain", {"jpg": images, "cls": ["dog", "cat", "dog", "eel"], "width": [12] * 4})
    assert load(plain).classes == ("cat", "dog", "eel")
    assert load(plain).train.labels.tolist() == [1, 0, 1, 2]
    two = write(tmp_path / "two", {"a": images, "b": images[::-1], "kind": [0, 1, 1, 0]})
    with pytest.raises(
        DataError, match="several columns could hold the images; set the option `image` to one of: a, b"
    ):
        load(two)
    with pytest.raises(
        DataError, match="no column seems to hold the labels; set the option `label` to one of: a, b, kind"
    ):
        load(two, image="b")
    assert load(two, image="b", label="kind").train.images[0].equal(load(plain).train.images[3])
    with pytest.raises(DataError, match="has no column `kind` of that kind"):
        load(two, image="kind", label="kind")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0.5, 1.0], r"numbers or names of classes; got 0\.5"),
        ([0, -1], r"must be in 0\.\.\d+; got -1"),
        ([0, None], "got None"),
        ([0, 2**40], r"got 0\.\.1099511627776"),
    ],
)
def test_labels_that_are_no_classes_are_said(tmp_path: Path, labels: list[Any], said: str) -> None:
    images = [encoded(number) for number in range(2)]
    with pytest.raises(DataError, match=said):
        load(write(tmp_path / "images", {"image": images, "label": labels}))


def test_a_file_without_the_columns_of_the_first_one_is_said(tmp_path: Path) -> None:
    images = [encoded(number) for number in range(2)]
    folder = write(tmp_path / "images", {"image": images, "label": [0, 1]})
    pq.write_table(pa.table({"pixels": images, "label": [0, 1]}), folder / "test.parquet")
    with pytest.raises(DataError, match="damaged or cannot be read"):
        load(folder)


def test_damaged_shards_are_refused_or_read(tmp_path: Path) -> None:
    counts, findings = fuzz_shards.fuzz(range(150, 180), tmp_path)
    assert findings == []
    assert counts["refused"] > 5


def test_images_that_are_elsewhere_are_not_opened(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    images = [{"bytes": None, "path": str(tmp_path / "secret.png")}] * 2
    folder = write(tmp_path / "images", {"image": images, "label": [0, 1]})
    with pytest.raises(DataError, match=r"no column seems to hold the images|in other files, or none"):
        load(folder)
    part = datasets.Dataset.from_dict({"image": images, "label": [0, 1]}, features=FEATURES)
    table_of = pa.table({"image": part.data.column("image"), "label": [0, 1]})
    for name in ("train", "test"):
        with (tmp_path / f"{name}.arrow").open("wb") as sink, pa.ipc.new_stream(sink, table_of.schema) as out:
            out.write_table(table_of)
    with pytest.raises(DataError, match="images that are in other files, or none; embed them"):
        load(tmp_path)


def test_damaged_and_compressed_files_are_one_sentence(arrow: Path, parquet: Path, tmp_path: Path) -> None:
    place = next((arrow / "train").glob("*.arrow"))
    place.write_bytes(place.read_bytes()[:-2000])
    with pytest.raises(DataError, match=r"damaged or cannot be read|outside it"):
        load(arrow)
    place.write_bytes(b"ARROW1")
    with pytest.raises(DataError, match="damaged or cannot be read"):
        load(arrow)
    whole = pa.table({"image": [encoded(0)], "label": [0]})
    for name in ("train", "test"):
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        place = tmp_path / f"{name}.arrow"
        with place.open("wb") as sink, pa.ipc.new_stream(sink, whole.schema, options=options) as out:
            out.write_table(whole)
    with pytest.raises(DataError, match="compressed columns; save it again"):
        load(tmp_path)


def test_a_value_that_expands_is_read_in_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary makes many equal rows of a few bytes; a batch of them must not fill the memory."""
    from hypersparse.data import huggingface

    monkeypatch.setattr(huggingface, "BATCH_BYTES", 100_000)
    folder = write(tmp_path / "images", {"image": [b"x" * 20_000] * 40, "label": [0] * 40}, use_dictionary=True)
    columns = huggingface.Columns("image", "label", None, in_struct=False)
    batches = list(huggingface._parquet_batches(folder / "train.parquet", columns))
    assert (folder / "train.parquet").stat().st_size < 30_000
    assert sum(len(batch) for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) < 120_000


def test_a_folder_without_one_of_the_splits_is_said(arrow: Path) -> None:
    for name in ("validation", "test"):
        for file in (arrow / name).iterdir():
            file.unlink()
    with pytest.raises(DataError, match=r"has no \.arrow file of the split `validation`; their names or folders"):
        load(arrow)
    with pytest.raises(OptionError, match="shape"):
        load(arrow, shape=3)


def test_pictures_are_what_they_were() -> None:
    assert Image.open(io.BytesIO(rows(1)["image"][0]["bytes"])).size == (12, 12)

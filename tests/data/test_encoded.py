"""Encoded images: decoded in threads or batch by batch, their bytes are the same."""

import io
import pickle
import warnings
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hypersparse.data import decode, folder
from hypersparse.data.dataset import channel_statistics
from hypersparse.data.decode import NamedFiles, bombs_raise, decode_image, random_box
from hypersparse.data.encoded import EncodedSplit
from hypersparse.errors import DataError, OptionError
from tests.data.pictures import encoded, write_folder


def split_of(count: int, *, size: int | None = None, kind: str = "PNG") -> EncodedSplit:
    files = {f"{number}.png": encoded(number, kind=kind) for number in range(count)}
    return EncodedSplit(NamedFiles(list(files), files.__getitem__), np.arange(count), torch.arange(count) % 4, size)


def test_threads_decode_the_bytes_of_a_serial_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "IMAGES_PER_TASK", 3)
    split = split_of(20, size=5, kind="JPEG")
    with bombs_raise():
        serial = [decode_image(split.source.read(number), "", 5) for number in range(20)]
    assert split.images.numpy().tobytes() == np.stack(serial).tobytes()
    assert split.read(torch.arange(20)).equal(split.images)


def test_a_part_holds_its_own_images_and_labels() -> None:
    split = split_of(8)
    part = split[torch.tensor([6, 1])][:1]
    assert (len(part), part.labels.tolist()) == (1, [2])
    assert part.images.equal(split.images[6:7])
    assert part.read(torch.tensor([0])).equal(split.images[6:7])


def test_memory_is_known_before_anything_is_decoded() -> None:
    unreadable = NamedFiles(["a", "b"], lambda name: pytest.fail("read"))
    split = EncodedSplit(unreadable, np.arange(2), torch.zeros(2, dtype=torch.int64), size=10)
    assert split.nbytes == 2 * 3 * 10 * 10 + 2 * 8
    assert split_of(3).nbytes == 3 * 3 * 12 * 12 + 3 * 8


def test_statistics_are_those_of_the_decoded_images(monkeypatch: pytest.MonkeyPatch) -> None:
    split = split_of(9)
    mean, std = split.statistics()
    expected = channel_statistics(split.images)
    assert mean == pytest.approx(expected[0])
    assert std == pytest.approx(expected[1])
    monkeypatch.setattr("hypersparse.data.encoded.MEASURED_IMAGES", 3)
    assert split.statistics()[0] == pytest.approx(channel_statistics(split.images[::3])[0])


def test_random_crops_are_decided_by_seed_and_place() -> None:
    split = split_of(6, size=8)
    places = torch.tensor([4, 2])
    first = split.read(places, "seed")
    assert first.shape == (2, 3, 8, 8)
    assert first.equal(split.read(places, "seed"))
    assert first[1:].equal(split.read(places[1:], "seed"))  # whatever else is in the batch
    assert not first.equal(split.read(places, "another"))
    assert not first.equal(split.read(places))


@given(width=st.integers(1, 300), height=st.integers(1, 300), seed=st.integers(0, 99))
def test_random_boxes_lie_in_the_image(width: int, height: int, seed: int) -> None:
    left, top, right, bottom = random_box(width, height, Random(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


def test_random_boxes_have_the_areas_and_ratios_of_torchvision() -> None:
    random = Random(0)
    boxes = [random_box(400, 400, random) for _ in range(2000)]
    areas = np.array([(box[2] - box[0]) * (box[3] - box[1]) for box in boxes]) / 400**2
    ratios = np.array([(box[2] - box[0]) / (box[3] - box[1]) for box in boxes])
    assert 0.075 < areas.min() < 0.12
    assert 0.95 < areas.max() <= 1
    assert areas.mean() == pytest.approx(0.478, abs=0.02)  # the integral; below 0.54, since not every large one fits
    assert 0.74 < ratios.min() < 0.78
    assert 1.29 < ratios.max() < 1.35


def test_a_bomb_among_many_images_raises_in_threads_and_leaves_the_filters_of_warnings() -> None:
    file = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(file, "PNG")
    files = {"good": encoded(0), "bomb": file.getvalue()}
    split = EncodedSplit(NamedFiles(list(files), files.__getitem__), np.arange(2), torch.zeros(2, dtype=torch.int64))
    before = list(warnings.filters)
    for read in (lambda: split.images, lambda: split.read(torch.tensor([1]))):
        with pytest.raises(DataError, match=r"^bomb has more pixels than an image may have"):
            read()
    assert list(warnings.filters) == before


def test_a_batch_with_another_size_names_the_image(tmp_path: Path) -> None:
    split = folder.read(write_folder(tmp_path, train=8)).train
    (tmp_path / "train/fox/00003.png").write_bytes(encoded(0, (7, 6)))
    with pytest.raises(DataError, match=r"00003\.png has 7 x 6 pixels where .* has 12 x 12; .*`size`"):
        split.read(torch.arange(8))


def test_a_split_of_files_can_be_sent_to_a_process(tmp_path: Path) -> None:
    split = folder.read(write_folder(tmp_path, train=4), size=4).train
    assert isinstance(split, EncodedSplit)
    assert pickle.loads(pickle.dumps(split)).images.equal(split.images)
    (tmp_path / "train/cat/00000.png").unlink()
    with pytest.raises(DataError, match=r"00000\.png cannot be read"):
        split.read(torch.arange(1))


def test_random_crops_need_a_size(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`augment=random-resized-crop` needs the side of the crops; set `size`"):
        folder.read(tmp_path, augment="random-resized-crop")

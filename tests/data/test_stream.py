"""Streamed batches: the same as those of images on the device, whatever the workers; resume is exact."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hypersparse.data import folder
from hypersparse.data.batches import Batches
from hypersparse.data.dataset import AnySplit, Split
from hypersparse.data.stream import StreamedBatches, read_in_order
from hypersparse.errors import DataError
from tests.data.pictures import write_folder
from tests.data.test_batches import same, take

CPU = torch.device("cpu")
SETTINGS: dict[str, Any] = {"batch_size": 8, "seed": 3, "mean": [0.4] * 3, "std": [0.3] * 3}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("images"))


@pytest.fixture
def split(pictures: Path) -> AnySplit:
    return folder.read(pictures).train


@pytest.fixture
def cropped(pictures: Path) -> AnySplit:
    return folder.read(pictures, size=8, augment="random-resized-crop").train


def streamed(split: AnySplit, workers: int = 0, **more: Any) -> StreamedBatches:
    return StreamedBatches(split, CPU, workers=workers, **SETTINGS, **more)


@pytest.mark.parametrize("workers", [0, 3])
def test_batches_are_those_of_images_on_the_device(split: AnySplit, workers: int) -> None:
    settings: dict[str, Any] = {**SETTINGS, "padding": 2, "flip": True, "drop_last": False, "batch_size": 12}
    kept = Batches(split.images, split.labels, **settings)
    stream = StreamedBatches(split, CPU, workers=workers, **settings)
    assert same(take(kept, 6), take(stream, 6))
    decoded = StreamedBatches(Split(split.images, split.labels), CPU, workers=workers, **settings)
    assert same(take(kept, 1), take(stream, 1))
    assert same(take(streamed(split), 5), take(streamed(Split(split.images, split.labels)), 5))
    assert same(list(kept.in_order(12)), list(decoded.in_order(12)))
    assert kept.state_dict()["order"].equal(stream.state_dict()["order"])


def test_random_crops_do_not_depend_on_the_workers(cropped: AnySplit) -> None:
    expected = take(streamed(cropped, flip=True), 12)
    assert same(take(streamed(cropped, 1, flip=True), 12), expected)
    assert same(take(streamed(cropped, 3, flip=True), 12), expected)
    clean = {int(label): image for image, label in _in_order(cropped)}
    first, second = expected[:5], expected[5:10]
    assert not any(torch.equal(image, clean[int(label)]) for images, labels in first for image, label in
                   zip(images, labels, strict=True))  # fmt: skip
    assert {image.sum().item() for images, _ in first for image in images}.isdisjoint(
        image.sum().item() for images, _ in second for image in images
    )


@pytest.mark.parametrize("before", [0, 2, 5, 7])
@pytest.mark.parametrize("workers", [0, 2])
def test_resume_is_exact_between_any_two_batches(cropped: AnySplit, before: int, workers: int) -> None:
    expected = take(streamed(cropped), before + 6)
    stopped = streamed(cropped, workers)
    take(stopped, before)
    resumed = streamed(cropped)
    resumed.load_state_dict(stopped.state_dict())
    assert same(take(resumed, 6), expected[before:])
    assert same(take(stopped, 6), expected[before:])


def test_batches_can_be_asked_for_by_their_number(cropped: AnySplit) -> None:
    stream = streamed(cropped)
    third = stream.batch(3)
    assert same([stream.batch(number) for number in (0, 3)], [streamed(cropped).batch(0), third])


def test_streams_draw_no_random_numbers_of_the_network(split: AnySplit) -> None:
    before = torch.get_rng_state()
    take(streamed(split, 2), 5)
    assert torch.get_rng_state().equal(before)


def test_workers_end_with_the_epoch(split: AnySplit) -> None:
    before = children()
    list(streamed(split, 2))
    assert children() == before
    stream = streamed(split, 2)
    stream.batch(0)
    assert len(children()) == len(before) + 2
    del stream
    assert children() == before


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_one_sentence(tmp_path: Path, workers: int) -> None:
    split = folder.read(write_folder(tmp_path)).train
    (tmp_path / "train/eel/00010.png").write_bytes(b"text")
    with pytest.raises(DataError, match=r"^\S+00010\.png cannot be read as an image \(.*\); replace or remove it\.$"):
        list(streamed(split, workers))


def test_the_signals_of_a_terminal_do_not_reach_workers_and_a_killed_one_is_named(split: AnySplit) -> None:
    stream, others = streamed(split, 1), children()
    stream.batch(0)
    (worker,) = children() - others
    assert os.getpgid(worker) == worker != os.getpgrp()
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(DataError, match=r"A process that decodes images ended .* pass fewer --workers"):
        [stream.batch(number) for number in range(1, 5)]


def _in_order(split: AnySplit) -> list[tuple[Tensor, Tensor]]:
    mean, std = torch.tensor(SETTINGS["mean"]), torch.tensor(SETTINGS["std"])
    pairs = read_in_order(split, torch.arange(len(split)), mean, std, batch_size=7, workers=0)
    return [(image, label) for images, labels in pairs for image, label in zip(images, labels, strict=True)]


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}

"""The loading benchmark: steps per second on images that are decoded while training, beside a plain PyTorch loop."""

import io
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.timing import BenchCallback, wait_for_stream
from hypersparse import data, models
from hypersparse.data.augment import normalize
from hypersparse.data.dataset import Dataset
from hypersparse.recipe import Recipe, resolve
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import Training
from hypersparse.training.machine import Machine

PLAIN, OURS = "plain PyTorch", "hypersparse"
SOURCES = ("files", "shards")
CLASSES, TEST_IMAGES, FILE_SIDE = 4, 8, 96  # pixels of the files, which are then cropped and resized
LoadingRow = dict[str, Any]


@dataclass(frozen=True)
class LoadingCase:
    """Where the images are, and how many processes decode them."""

    source: str
    workers: int

    @property
    def title(self) -> str:
        """The description shown while it runs."""
        return f"{self.source}, {self.workers} workers"


@dataclass(frozen=True)
class LoadingEffort:
    """How much is measured: epochs over so many images, without their first steps."""

    images: int
    side: int
    batch_size: int
    rounds: int
    warm_up_steps: int = 2


def measure(
    cases: Sequence[LoadingCase], model: str, effort: LoadingEffort, machine: Machine, callback: BenchCallback
) -> list[LoadingRow]:
    """Both loops in turns on every case; the median of the rounds."""
    rows: list[LoadingRow] = []
    recipe = _recipe(model, effort)
    with tempfile.TemporaryDirectory() as folder, machine.active() as device:
        places = write_images(Path(folder), effort.images)
        for case in cases:
            callback.began(case)
            began = time.monotonic()
            options = {"size": effort.side, "augment": "random-resized-crop"}
            dataset = data.load(str(places[case.source]), options=options)
            loops = {
                PLAIN: _plain_steps(dataset, recipe, case, device),
                OURS: _our_steps(dataset, recipe, case, machine, RunFolder(f"{folder}/{case.title}")),
            }
            seconds: dict[str, list[float]] = {name: [] for name in loops}
            for _ in range(effort.rounds):
                for name, epoch in loops.items():
                    seconds[name].append(_seconds_of_step(epoch(), effort.warm_up_steps, device))
            rows += [_row(case, model, effort, name, median(seconds[name]), device) for name in loops]
            callback.ended(case, time.monotonic() - began)
    return rows


def _recipe(model: str, effort: LoadingEffort) -> Recipe:
    table = {
        "data": {"name": "cifar10", "padding": 0, "flip": True},  # the images are given; random crops are theirs
        "model": {"name": model},
        "method": {"name": "dense"},
        "training": {"batch_size": effort.batch_size, "lr": 0.01, "weight_decay": 0.0},
    }
    return resolve(table)


def _seconds_of_step(steps: Iterator[None], warm_up: int, device: torch.device) -> float:
    """The mean of all steps of an epoch but the first ones, in which the workers start."""
    for _ in islice(steps, warm_up):
        pass
    wait_for_stream(device)
    began, count = time.perf_counter(), sum(1 for _ in steps)
    wait_for_stream(device)
    return (time.perf_counter() - began) / count


class _PlainImages(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """One image at a time, decoded, cropped at random and resized by the functions of this package."""

    def __init__(self, dataset: Dataset) -> None:
        self._split: Any = dataset.train

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        seed = str(torch.initial_seed())  # another one in each worker and epoch
        return self._split.read(torch.tensor([place]), seed)[0], int(self._split.labels[place])


def _plain_steps(
    dataset: Dataset, recipe: Recipe, case: LoadingCase, device: torch.device
) -> Callable[[], Iterator[None]]:
    name, options = recipe.model.name, recipe.model.options
    network = models.build(name, shape=dataset.shape, classes=CLASSES, options=options).to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    mean, std = (torch.tensor(numbers, device=device) for numbers in (dataset.mean, dataset.std))
    loader = DataLoader(
        _PlainImages(dataset),
        batch_size=recipe.training.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=case.workers,
        pin_memory=device.type == "cuda",
    )

    def epoch() -> Iterator[None]:
        for images, labels in loader:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            images = torch.where(torch.rand(len(images), 1, 1, 1, device=device) < 0.5, images.flip(3), images)
            loss = nn.functional.cross_entropy(network(normalize(images, mean, std)), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            yield

    return epoch


def _our_steps(
    dataset: Dataset, recipe: Recipe, case: LoadingCase, machine: Machine, run: RunFolder
) -> Callable[[], Iterator[None]]:
    loading = Machine(device=machine.device, workers=case.workers, threads=machine.threads)
    training = Training(recipe, 0, loading, loading.torch_device(), dataset, run, record=False)
    training.begin_epoch()
    step = training.step_of_phase()

    def epoch() -> Iterator[None]:
        for number in training.batches.numbers():
            step(number)
            yield

    return epoch


def write_images(folder: Path, count: int) -> dict[str, Path]:
    """The same smooth random JPEG files as a folder of classes and as a shard of each split."""
    random = np.random.default_rng(0)
    for part, images in (("train", count), ("val", TEST_IMAGES)):
        with _shard(folder / "shards" / f"{part}.tar") as tar:
            for number in range(images):
                content = _jpeg(random)
                place = folder / "files" / part / str(number % CLASSES)
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{number:06}.jpg").write_bytes(content)
                for ending, part_of in (("jpg", content), ("cls", b"%d" % (number % CLASSES))):
                    member = tarfile.TarInfo(f"{number:06}.{ending}")
                    member.size = len(part_of)
                    tar.addfile(member, io.BytesIO(part_of))
    return {source: folder / source for source in SOURCES}


def _shard(path: Path) -> tarfile.TarFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    return tarfile.open(path, "w")


def _jpeg(random: np.random.Generator) -> bytes:
    coarse = Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((FILE_SIDE, FILE_SIDE), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def _row(
    case: LoadingCase, model: str, effort: LoadingEffort, loop: str, seconds: float, device: torch.device
) -> LoadingRow:
    return {
        "images": case.source,
        "workers": case.workers,
        "loop": loop,
        "steps_per_second": 1 / seconds,
        "images_per_second": effort.batch_size / seconds,
        "model": model,
        "batch_size": effort.batch_size,
        "side": effort.side,
        "rounds": effort.rounds,
        "device": str(device),
    }

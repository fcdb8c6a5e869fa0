"""Streamed runs: the same bits as with images on the device, exact resume, bounded memory."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from hypersparse import data
from hypersparse.errors import DataError, OptionError
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loaders import bring_images
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.memory import describe_memory, is_streamed
from hypersparse.training.stop import Stopped
from tests.data.pictures import write_folder
from tests.data.test_stream import children
from tests.training.small import StopAfter, small
from tests.training.test_loop import same_network, values

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
KEPT = Machine(device="cpu", stream="never", threads=1, checkpoint_seconds=0.0)
STREAMED = Machine(device="cpu", stream="always", workers=0, threads=1, checkpoint_seconds=0.0)
WITH_WORKERS = Machine(device="cpu", stream="always", workers=2, threads=1, checkpoint_seconds=0.0)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("images"), train=96, test=16)


def recipe(pictures: Path, **more: Any) -> Recipe:
    table = {"name": str(pictures), "padding": 1, "flip": True, "validation": 16, **more}
    return small(data=table, method={"pretrain_epochs": 1, "max_regularized_epochs": 2})


@pytest.mark.parametrize("scoring", ["clean", "augmented"])
def test_a_streamed_run_has_the_bits_of_one_on_the_device(pictures: Path, tmp_path: Path, scoring: str) -> None:
    asked = recipe(pictures, scoring_images=scoring)
    train(asked, 0, KEPT, tmp_path / "kept")
    train(asked, 0, STREAMED, tmp_path / "streamed")
    assert same_network(tmp_path / "kept", tmp_path / "streamed")
    assert values(tmp_path / "kept") == values(tmp_path / "streamed")


@pytest.mark.slow
def test_arrays_in_memory_can_be_streamed_too(tmp_path: Path) -> None:
    for name, machine in (("kept", KEPT), ("streamed", WITH_WORKERS)):
        train(small(training={"epochs": 1}), 0, machine, tmp_path / name)
    assert same_network(tmp_path / "kept", tmp_path / "streamed")


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 4, 7])
def test_a_stopped_run_with_random_crops_ends_the_same(pictures: Path, tmp_path: Path, steps: int) -> None:
    asked = recipe(pictures, size=8, augment="random-resized-crop")
    train(asked, 0, STREAMED, tmp_path / "whole")
    stop, before = StopAfter(steps), children()
    with pytest.raises(Stopped):
        train(asked, 0, WITH_WORKERS, tmp_path / "stopped", callback=stop, stop=stop.request)
    assert children() == before  # though the error, and all that it saw, is still known
    train(asked, 0, WITH_WORKERS, tmp_path / "stopped")
    assert same_network(tmp_path / "whole", tmp_path / "stopped")
    assert values(tmp_path / "whole") == values(tmp_path / "stopped")


def test_the_machine_is_not_in_the_key_and_the_augmentation_is(pictures: Path) -> None:
    plain, cropped = recipe(pictures, size=8), recipe(pictures, size=8, augment="random-resized-crop")
    assert plain.key != cropped.key
    assert "scoring_count" not in json.dumps(recipe(pictures)._changed())


def test_what_does_not_fit_is_streamed_and_never_is_refused(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = data.load(str(pictures))
    needed = dataset.bytes_needed(CPU)
    assert needed == 112 * (3 * 12 * 12 + 8)
    monkeypatch.setattr("hypersparse.training.memory.free_bytes", lambda device: needed - 1)
    assert is_streamed(dataset, Machine(device="cpu"))
    with pytest.raises(DataError, match=r"needs 0\.0 MB on cpu, where .* are free; leave out `--stream never`"):
        is_streamed(dataset, KEPT)
    monkeypatch.setattr("hypersparse.training.memory.free_bytes", lambda device: 3 * needed)
    assert not is_streamed(dataset, Machine(device="cpu"))
    assert is_streamed(dataset, Machine(device="cpu", memory_share=0.3))
    assert describe_memory(dataset, KEPT).startswith("112 images of 3 x 12 x 12 need 0.0 MB; ")


def test_random_crops_cannot_be_kept(pictures: Path) -> None:
    dataset = data.load(str(pictures), options={"size": 8, "augment": "random-resized-crop"})
    with pytest.raises(DataError, match="are decoded in every epoch; leave out `--stream never`"):
        is_streamed(dataset, KEPT)
    assert not is_streamed(dataset, Machine(device="cpu"))  # what can be kept is
    assert describe_memory(dataset, STREAMED).endswith("since every crop of them is decoded again")


def test_a_method_can_score_on_a_part_of_the_images(pictures: Path) -> None:
    dataset = data.load(str(pictures))
    images = bring_images(recipe(pictures, scoring_count=20), 0, dataset, CPU, KEPT)
    assert len(images.scoring.labels) == 20
    assert images.batches.samples == 80
    with pytest.raises(OptionError, match="`scoring_count` is 90, of 80 training images"):
        bring_images(recipe(pictures, scoring_count=90), 0, dataset, CPU, KEPT)


@pytest.mark.slow
def test_a_run_that_scores_on_a_part_leaves_its_record(pictures: Path, tmp_path: Path) -> None:
    train(recipe(pictures, scoring_count=20), 0, STREAMED, tmp_path)
    assert RunFolder(tmp_path).record_file.exists()


LIMITED = """
import re, resource, sys
from pathlib import Path
from torch import nn
from hypersparse import Machine, train
from hypersparse.recipe import resolve

def net(shape, classes):
    return nn.Sequential(nn.AvgPool2d(64), nn.Flatten(), nn.Linear(3 * 2 * 2, 8), nn.ReLU(), nn.Linear(8, classes))

def run(images, stream):
    recipe = resolve({
        "data": {"name": images}, "model": {"name": "own:net"}, "method": {"name": "dense"},
        "training": {"epochs": 1, "batch_size": 16, "lr": 0.01},
    }, own_code=["own:net"])
    machine = Machine(device="cpu", workers=1, stream=stream, threads=1)
    train(recipe, 0, machine, Path(folder) / f"{stream}-{Path(images).name}", record=False)

sys.modules["own"] = sys.modules["__main__"]
small, images, folder, allowed = sys.argv[1:]
run(small, "always")  # loads what any run needs
used = int(re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + int(allowed),) * 2)  # of workers too
run(images, "always")
try:
    run(images, "never")
except (MemoryError, RuntimeError) as error:
    print("refused:", type(error).__name__)
"""
IMAGES, SIDE = 6000, 128


def as_shards(place: Path, folder: Path) -> Path:
    folder.mkdir()
    for part in ("train", "val"):
        with tarfile.open(folder / f"{part}.tar", "w") as tar:
            for number, file in enumerate(sorted((place / part).glob("*/*"), key=lambda path: path.name)):
                for name, content in ((f"{number}.jpg", file.read_bytes()), (f"{number}.cls", b"%d" % (number % 4))):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return folder


@pytest.mark.slow
def test_a_streamed_run_needs_far_less_memory_than_its_images(tmp_path: Path) -> None:
    """The limit is the system's; with it the same images cannot be kept."""
    small = write_folder(tmp_path / "small", train=32, test=16, size=(SIDE, SIDE), kind="JPEG")
    place = write_folder(tmp_path / "images", train=IMAGES, test=64, size=(SIDE, SIDE), kind="JPEG")
    images = as_shards(place, tmp_path / "other")
    allowed = IMAGES * 3 * SIDE * SIDE // 2  # of 295 MB
    command = [sys.executable, "-c", LIMITED, *map(str, (small, images, tmp_path / "run", allowed))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused:")

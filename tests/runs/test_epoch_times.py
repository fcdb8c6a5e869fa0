"""What finished runs tell of those that are missing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hypersparse.recipe import Recipe, resolve
from hypersparse.runs.epoch_times import EpochTime, Measured, epoch_time_of, expected_epochs, measured_in
from hypersparse.runs.store import RunStore
from hypersparse.training.machine import Machine
from tests.runs.finished import finish
from tests.training.small import small

CPU = Machine(device="cpu")


def test_each_phase_has_the_pace_of_runs_of_its_method(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    slower = {"pre-train": 40.0, "regularize": 120.0, "fine-tune": 10.0}
    finish(store, small(), seed=1, seconds=slower)
    measured = measured_in([store, store], CPU)  # both count once
    other = small(method={"sparsity": 0.5})
    assert epoch_time_of(other, "pre-train", measured) == EpochTime(15.0, "2 like it")
    assert epoch_time_of(other, "regularize", measured) == EpochTime(30.0, "2 like it")


def test_where_no_run_of_the_method_is_there_others_on_the_data_and_model_count(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    measured = measured_in([store], CPU)
    snip = small(method={"name": "snip", "sparsity": 0.9})
    assert epoch_time_of(snip, "train", measured) == EpochTime(150 / 8, "1 other")
    for elsewhere in (
        small(model={"width": 8}),
        small(data={"images": 256}),
        small(training={"batch_size": 16}),
        small(model={"narrow": 0.5}),
    ):
        assert epoch_time_of(elsewhere, "pre-train", measured) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": {"device": "NVIDIA H200", "precision": "fp32"}},
        {"machine": {"device": "cpu", "precision": "bf16"}},
        {"seconds": None},  # damaged
        {"epochs": {}},
    ],
    ids=str,
)
def test_runs_of_another_device_and_damaged_ones_do_not_count(tmp_path: Path, changed: dict[str, Any]) -> None:
    store = RunStore(tmp_path)
    finish(store, small(), **changed)
    assert measured_in([store], CPU) == []


def test_an_open_end_is_where_runs_with_the_same_options_ended(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    ended = {"pre-train": 2, "regularize": 7, "fine-tune": 2}
    finish(store, small(), seed=1, epochs=ended)
    measured = measured_in([store], CPU)
    longer, other = small(training={"epochs": 9}), small(method={"sparsity": 0.5})
    assert [expected_epochs(longer, phase, measured) for phase in longer.plan()] == [2, 6, 9]  # of 4 and 7
    assert [expected_epochs(other, phase, measured) for phase in other.plan()] == [2, 1, 2]  # a third of 3 is guessed


def cifar(data: str, sparsity: float = 0.98, **method: Any) -> Recipe:
    return resolve({"data": {"name": data}, "method": {"name": "art", "sparsity": sparsity, **method}})


def regularized(recipe: Recipe, measured: list[Measured]) -> int:
    (phase,) = [phase for phase in recipe.plan() if phase.name == "regularize"]
    return expected_epochs(recipe, phase, measured)


def test_of_cifar100_nothing_is_known_at_first_but_cifar10_has_as_many_images_of_one_size(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, cifar("cifar10"))
    finish(store, resolve({"data": {"name": "tinyimagenet"}, "method": {"name": "dense"}}))
    measured = measured_in([store], CPU)
    assert epoch_time_of(cifar("cifar100"), "regularize", measured) == EpochTime(30.0, "1 like it on cifar10")
    snip = resolve({"data": {"name": "cifar100"}, "method": {"name": "snip", "sparsity": 0.9}})
    assert epoch_time_of(snip, "train", measured) == EpochTime(150 / 8, "1 other on cifar10")
    assert epoch_time_of(resolve({"data": {"name": "cifar100"}, "model": {"name": "vgg19"}}), "train", measured) is None
    assert regularized(cifar("cifar100"), measured) == 4
    assert regularized(cifar("cifar100", 0.998), measured) == 100  # a third of the way: no run at that sparsity


def test_runs_on_the_data_themselves_say_more_than_those_on_others(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, cifar("cifar10"))
    slow = {"pre-train": 40.0, "regularize": 400.0, "fine-tune": 10.0}
    later = {"pre-train": 2, "regularize": 8, "fine-tune": 2}
    finish(store, cifar("cifar100"), epochs=later, seconds=slow)
    measured = measured_in([store], CPU)
    assert epoch_time_of(cifar("cifar100"), "regularize", measured) == EpochTime(50.0, "1 like it")
    assert regularized(cifar("cifar100"), measured) == 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_where_there_is_no_gpu_runs_of_any_gpu_tell_its_pace(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    finish(store, small(), seed=1, machine={"device": "NVIDIA H200", "precision": "bf16"})
    finish(store, small(), seed=2, machine={"device": "NVIDIA A100", "precision": "bf16"})
    finish(store, small(), seed=3, machine={"device": "NVIDIA H200", "precision": "fp32"})
    found = measured_in([store], Machine(device="cuda:3", precision="bf16"))
    assert {each.run.name for each in found} == {"seed-1", "seed-2"}
    assert {each.run.name for each in measured_in([store], CPU)} == {"seed-0"}

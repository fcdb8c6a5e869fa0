"""What missing runs cost, from finished runs whose times are known."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table

from hypersparse.cli.cost import Pace, cost, epochs_left, measured_in, pace_of
from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.training.folder import RunFolder
from hypersparse.training.machine import Machine
from hypersparse.training.together import Job
from tests.training.small import small

CPU = Machine(device="cpu")
PLAN = [("pre-train", 2), ("regularize", 1), ("fine-tune", 2)]  # at most 3 regularized epochs: a third is guessed


def finish(store: RunStore, recipe: Recipe, seed: int = 0, **changed: Any) -> RunFolder:
    """A run of ten seconds an epoch in pre-training, 30 with the penalty, 5 in fine-tuning."""
    run = store.folder(recipe, seed)
    run.path.mkdir(parents=True)
    run.write_recipe(recipe, seed)
    result = {
        "until": None,
        "epochs": {"pre-train": 2, "regularize": 4, "fine-tune": 2},
        "wall_seconds_by_phase": {"pre-train": 20.0, "regularize": 120.0, "fine-tune": 10.0},
        "machine": {"device": "cpu", "precision": "fp32"},
    }
    run.write_result(result | changed)
    return run


def lines(table: Table) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    return [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def no_trial(_: Recipe) -> None:
    """As where the data are missing."""


def test_each_phase_has_the_pace_of_runs_of_its_method(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    slower = {"pre-train": 40.0, "regularize": 120.0, "fine-tune": 10.0}
    finish(store, small(), seed=1, wall_seconds_by_phase=slower)
    measured = measured_in([store, store], CPU)  # both count once
    other = small(method={"sparsity": 0.5})
    assert pace_of(other, "pre-train", measured) == Pace(15.0, "2 like it")
    assert pace_of(other, "regularize", measured) == Pace(30.0, "2 like it")
    job = Job(other, 0, tmp_path / "new")
    rows = lines(cost([job], measured, no_trial))
    assert rows[1:6] == [
        ["synthetic,", "resnet8"],
        ["art", "hypersparse", "pre-train", "1", "2", "15.00", "30", "s", "2", "like", "it"],
        ["regularize", "1", "1", "30.00", "30", "s", "2", "like", "it"],
        ["fine-tune", "1", "2", "5.00", "10", "s", "2", "like", "it"],
        ["all", "1", "5", "70", "s"],
    ]
    assert "on the same data and model" in " ".join(word for row in rows[6:] for word in row)


def test_where_no_run_of_the_method_is_there_others_on_the_data_and_model_count(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    measured = measured_in([store], CPU)
    snip = small(method={"name": "snip", "sparsity": 0.9})
    assert pace_of(snip, "train", measured) == Pace(150 / 8, "1 other")
    for elsewhere in (
        small(model={"width": 8}),
        small(data={"images": 256}),
        small(training={"batch_size": 16}),
        small(ablation={"name": "narrow"}),
    ):
        assert pace_of(elsewhere, "pre-train", measured) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": {"device": "NVIDIA H200", "precision": "fp32"}},
        {"machine": {"device": "cpu", "precision": "bf16"}},
        {"wall_seconds_by_phase": None},  # damaged
        {"epochs": {}},
    ],
    ids=str,
)
def test_runs_of_another_device_and_damaged_ones_do_not_count(tmp_path: Path, changed: dict[str, Any]) -> None:
    store = RunStore(tmp_path)
    finish(store, small(), **changed)
    assert measured_in([store], CPU) == []


def test_without_runs_it_is_a_trial_and_without_data_not_known(tmp_path: Path) -> None:
    tried = []

    def trial(recipe: Recipe) -> float:
        tried.append(recipe)
        return 2.0

    jobs = [Job(small(), seed, tmp_path / f"{seed}") for seed in range(3)]
    rows = lines(cost(jobs, [], trial))
    assert len(tried) == 1  # for all on these data with this model
    assert rows[4] == ["fine-tune", "3", "6", "2.00", "12", "s", "a", "short", "trial"]
    assert rows[5] == ["all", "3", "15", "30", "s"]
    unknown = lines(cost(jobs, [], no_trial))
    assert unknown[4] == ["fine-tune", "3", "6", "not", "known", "nothing"]
    assert unknown[5] == ["all", "3", "15", "not", "known"]


def test_what_is_known_of_some_is_said_to_be_the_least(tmp_path: Path) -> None:
    finish(RunStore(tmp_path), small())
    measured = measured_in([RunStore(tmp_path)], CPU)
    jobs = [Job(small(), 1, tmp_path / "a"), Job(small(model={"width": 8}), 0, tmp_path / "b")]
    assert ["all", "2", "13", "at", "least", "2", "min"] in lines(cost(jobs, measured, no_trial))


def test_many_phases_are_one_row(tmp_path: Path) -> None:
    imp = small(method={"name": "imp", "sparsity": 0.9})
    rows = lines(cost([Job(imp, 0, tmp_path / "0")], [], lambda _: 1.0))
    epochs = sum(phase.epochs for phase in imp.plan())
    words = f"{len(imp.plan())} phases 1 {epochs} 1.00"  # of one run
    assert len(imp.plan()) > 4
    assert rows[2][:6] == ["imp", *words.split()]
    assert rows[3][0] == "all"


def test_epochs_that_were_trained_are_not_left(tmp_path: Path) -> None:
    job = Job(small(), 0, tmp_path)
    assert epochs_left(job) == PLAN
    run = RunFolder(tmp_path)
    for epoch, (phase, left) in enumerate(
        [
            ("pre-train", [1, 1, 2]),
            ("pre-train", [0, 1, 2]),
            ("regularize", [0, 0, 2]),
            ("regularize", [0, 0, 2]),  # longer than was guessed
            ("fine-tune", [0, 0, 1]),
        ]
    ):
        run.append_log({"epoch": epoch, "phase": phase})
        assert [epochs for _, epochs in epochs_left(job)] == left


def test_an_open_end_is_where_runs_with_the_same_options_ended(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    ended = {"pre-train": 2, "regularize": 7, "fine-tune": 2}
    finish(store, small(), seed=1, epochs=ended)
    measured = measured_in([store], CPU)
    longer = Job(small(training={"epochs": 9}), 0, tmp_path / "longer")
    assert epochs_left(longer, measured) == [("pre-train", 2), ("regularize", 6), ("fine-tune", 9)]  # of 4 and 7
    other = Job(small(method={"sparsity": 0.5}), 0, tmp_path / "other")
    assert epochs_left(other, measured) == PLAN


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

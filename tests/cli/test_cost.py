"""What missing runs cost, from finished runs whose times are known."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from hypersparse.cli.cost import cost_table
from hypersparse.recipe import Recipe, resolve
from hypersparse.runs.epoch_times import Measured, measured_in
from hypersparse.runs.forecast import Trial, cost
from hypersparse.runs.store import RunStore
from hypersparse.storage.checkpoint import save_tree
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.concurrent_runs import Job
from hypersparse.training.machine import Machine
from tests.runs.finished import finish
from tests.training.small import small

CPU = Machine(device="cpu")


def lines(jobs: Sequence[Job], measured: Sequence[Measured], trial: Trial) -> list[list[str]]:
    """The words of the table; of three regularized epochs at the most, one is guessed."""
    console = Console(file=io.StringIO(), width=200)
    console.print(cost_table(cost(jobs, CPU, phase_cache=Path("none"), measured=measured, trial=trial)))
    return [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def no_trial(_: Recipe) -> None:
    """As where the data are missing."""


def test_each_phase_has_the_pace_of_runs_of_its_method(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, small())
    slower = {"pre-train": 40.0, "regularize": 120.0, "fine-tune": 10.0}
    finish(store, small(), seed=1, seconds=slower)
    job = Job(small(method={"sparsity": 0.5}), 0, tmp_path / "new")
    rows = lines([job], measured_in([store], CPU), no_trial)
    assert rows[1:6] == [
        ["synthetic,", "resnet8"],
        ["art", "hypersparse", "pre-train", "1", "2", "15.00", "30", "s", "2", "like", "it"],
        ["regularize", "1", "1", "30.00", "30", "s", "2", "like", "it"],
        ["fine-tune", "1", "2", "5.00", "10", "s", "2", "like", "it"],
        ["all", "1", "5", "70", "s"],
    ]
    assert "on the same data and model" in " ".join(word for row in rows[6:] for word in row)


def test_without_runs_it_is_a_trial_and_without_data_not_known(tmp_path: Path) -> None:
    tried = []

    def trial(recipe: Recipe) -> float:
        tried.append(recipe)
        return 2.0

    jobs = [Job(small(), seed, tmp_path / f"{seed}") for seed in range(3)]
    rows = lines(jobs, [], trial)
    assert len(tried) == 1  # for all on these data with this model
    assert rows[4] == ["fine-tune", "3", "6", "2.00", "12", "s", "a", "short", "trial"]
    assert rows[5] == ["all", "3", "15", "30", "s"]
    unknown = lines(jobs, [], no_trial)
    assert unknown[4] == ["fine-tune", "3", "6", "not", "known", "nothing"]
    assert unknown[5] == ["all", "3", "15", "not", "known"]


def test_what_is_known_of_some_is_said_to_be_the_least(tmp_path: Path) -> None:
    finish(RunStore(tmp_path), small())
    measured = measured_in([RunStore(tmp_path)], CPU)
    jobs = [Job(small(), 1, tmp_path / "a"), Job(small(model={"width": 8}), 0, tmp_path / "b")]
    assert ["all", "2", "13", "at", "least", "2", "min"] in lines(jobs, measured, no_trial)


def test_many_phases_are_one_row(tmp_path: Path) -> None:
    imp = small(method={"name": "imp", "sparsity": 0.9})
    rows = lines([Job(imp, 0, tmp_path / "0")], [], lambda _: 1.0)
    epochs = sum(phase.epochs for phase in imp.plan())
    words = f"{len(imp.plan())} phases 1 {epochs} 1.00"  # of one run
    assert len(imp.plan()) > 4
    assert rows[2][:6] == ["imp", *words.split()]
    assert rows[3][0] == "all"


def test_a_common_beginning_is_paid_once_and_the_table_says_so(tmp_path: Path) -> None:
    recipes = [
        small(method={"sparsity": sparsity, "penalty": name}) for name in ("l1", "l2") for sparsity in (0.9, 0.95)
    ]
    jobs = [Job(recipe, seed, tmp_path / recipe.key / f"{seed}") for seed in range(2) for recipe in recipes]
    rows = lines(jobs, [], lambda _: 1.0)
    assert [row[:-6] for row in rows[2:7]] == [
        ["art", "l1", "pre-train", "2", "4"],  # of each seed once
        ["regularize", "4", "4"],
        ["fine-tune", "4", "8"],
        ["art", "l2", "regularize", "4", "4"],
        ["fine-tune", "4", "8"],
    ]
    assert rows[7] == ["all", "8", "28", "28", "s"]
    assert "a shared beginning is trained by" in " ".join(rows[8])


def test_phases_stand_in_the_order_of_the_plan_whoever_has_them_left(tmp_path: Path) -> None:
    done = Job(small(method={"max_regularized_epochs": 1}), 0, tmp_path / "0")
    position = {"sparsifier": {"entered": True, "phase_index": 2, "epoch": 0}}
    done.folder.mkdir()
    save_tree(RunFolder(done.folder).checkpoint_file, position)
    dense = Job(small(method={"name": "dense"}), 0, tmp_path / "1")
    rows = lines([done, dense, replace(done, seed=1, folder=tmp_path / "2")], [], lambda _: 1.0)
    assert [row[-9] for row in rows[2:6]] == ["pre-train", "regularize", "fine-tune", "train"]


def test_runs_on_data_as_large_are_said_to_be_such(tmp_path: Path) -> None:
    finish(RunStore(tmp_path), resolve({"data": {"name": "cifar10"}, "method": {"name": "art"}}))
    job = Job(resolve({"data": {"name": "cifar100"}, "method": {"name": "art"}}), 0, tmp_path / "new")
    words = " ".join(word for row in lines([job], measured_in([RunStore(tmp_path)], CPU), no_trial) for word in row)
    assert words.endswith("on cifar10: a data set with as many images of the same size")

"""Trackers: each epoch once, whatever happens to the run, and what fails there does not end the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hypersparse import data
from hypersparse.errors import OptionError
from hypersparse.extras import needed
from hypersparse.integrations.tracker import Trackers
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback, CallbackList, LogReader
from hypersparse.training.concurrency.concurrent_runs import Job, train_together
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.stored import whole_entry
from tests.training.small import StopAfter, small

pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
CPU = Machine(device="cpu")


class Kept:
    """A view that keeps what it is shown."""

    def __init__(self, epochs: int = 0) -> None:
        self.epochs, self.seen, self.closed = epochs, list[int](), 0
        self.values: list[Mapping[str, float]] = []

    def write(self, entry: Mapping[str, Any], values: Mapping[str, float]) -> None:
        self.seen.append(entry["epoch"])
        self.values.append(values)

    def close(self) -> None:
        self.closed += 1


def job_in(folder: Path, **tables: Any) -> Job:
    recipe = small(**tables)
    return Job(recipe, 0, folder / recipe.label / "seed-0")


def train_in_two_goes(job: Job, views: Sequence[Trackers]) -> None:
    """Stopped in the middle of the third epoch, and then on to the end with the second views."""
    for number, each in enumerate(views):
        stop = StopAfter(10)
        with each:
            try:
                callback = CallbackList([each.callback(job), stop])
                asked = {"callback": callback, "stop": None if number else stop.request}
                train(job.recipe, job.seed, CPU, job.folder, **asked)  # type: ignore[arg-type]
            except Stopped:
                assert not number


def test_each_epoch_is_shown_once_and_views_are_closed(tmp_path: Path) -> None:
    job, view = job_in(tmp_path), Kept()
    train_in_two_goes(job, [Trackers(lambda _: view)] * 2)
    assert view.seen == list(range(7))
    assert view.closed == 2
    first, last = view.values[0], view.values[-1]
    assert (first["sparsity"], first["learning_rate"], first["kept"]) == (0.0, pytest.approx(0.1), 4868)
    assert last["sparsity"] == pytest.approx(0.9, abs=1e-3)
    assert {"loss", "test_accuracy", "train_accuracy"} <= first.keys()
    assert "penalty_strength" in view.values[2]
    assert "penalty_strength" not in first


def test_a_view_that_begins_late_gets_the_epochs_before(tmp_path: Path) -> None:
    job, view = job_in(tmp_path), Kept()
    train_in_two_goes(job, [Trackers(lambda _: Kept()), Trackers(lambda _: view)])
    assert view.seen == list(range(7))


def test_epochs_that_are_trained_again_are_not_shown_again(tmp_path: Path) -> None:
    view = Kept(epochs=3)
    live = Trackers(lambda _: view).callback(job_in(tmp_path))
    for epoch in (1, 2, 3, 2, 3, 4):
        live.finished_epoch({"epoch": epoch, "kept": 1, "total": 2})
    assert view.seen == [3, 4]


def test_a_view_that_fails_is_said_once_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Kept):
        def write(self, entry: Mapping[str, Any], values: Mapping[str, float]) -> None:
            raise ConnectionError("nobody answers")

    job = job_in(tmp_path)
    with Trackers(lambda _: Fails()) as views:
        train(job.recipe, 0, CPU, job.folder, callback=views.callback(job))
    assert RunFolder(job.folder).result() is not None
    assert caplog.text.count("nobody answers") == 1


def test_finished_runs_are_closed_when_the_next_one_opens(tmp_path: Path) -> None:
    jobs = [job_in(tmp_path), job_in(tmp_path, method={"sparsity": 0.5})]
    kept = {job.folder: Kept() for job in jobs}
    with Trackers(lambda job: kept[job.folder]) as views:
        for job in jobs:
            train(job.recipe, 0, CPU, job.folder, callback=views.callback(job))
        assert [view.closed for view in kept.values()] == [1, 0]
    assert [view.closed for view in kept.values()] == [1, 1]


@pytest.mark.slow
def test_runs_in_processes_are_shown_too(tmp_path: Path) -> None:
    recipe = small()
    jobs = [Job(recipe, seed, tmp_path / recipe.label / f"seed-{seed}") for seed in range(2)]
    kept = {job.folder: Kept() for job in jobs}
    with Trackers(lambda job: kept[job.folder]) as views:
        watched = [Job(job.recipe, job.seed, job.folder, views.callback(job)) for job in jobs]
        train_together(watched, CPU, data.load("synthetic", options=recipe.data.options), concurrency=2)
    assert [view.seen for view in kept.values()] == [list(range(7))] * 2


def test_a_log_is_told_as_it_grows_and_not_again_after_a_cut(tmp_path: Path) -> None:
    class Counts(Callback):
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def finished_epoch(self, entry: dict[str, Any]) -> None:
            self.epochs.append(entry["epoch"])

    run, callback = RunFolder(tmp_path), Counts()
    run.append_log(whole_entry(epoch=0))
    reader = LogReader(run, callback)
    for epoch in (1, 2):
        run.append_log(whole_entry(epoch=epoch))
        reader.tell()
    run.cut_log(2)  # a crash: epoch 2 is trained again
    reader.tell()
    for epoch in (2, 3):
        run.append_log(whole_entry(epoch=epoch))
        reader.tell()
    assert callback.epochs == [1, 2, 3]


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(OptionError, match=r"pip install 'hypersparse\[ray\]'"):
        needed("no_such_module_anywhere", "ray", "`--executor ray`")

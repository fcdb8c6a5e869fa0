"""A search of options by Optuna, with trainings that a test makes up."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse import OptionError, RunError
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback
from hypersparse.training.stop import Stopped, StopRequest
from tests.training.small import small

pytest.importorskip("optuna")
from hypersparse.integrations.optuna import HOPELESS, JOURNAL, Range, Study

LR = Range.parse("training.lr=0.01..1.0")


def study(folder: Path, *, seed: int = 0, space: list[Range] | None = None) -> Study:
    return Study(folder, space or [LR], small(), seed=seed)


class Made:
    """Trainings of four sparse epochs whose accuracy is 1 minus the learning rate; one may be cut off."""

    def __init__(self, *, cut_off_at: int | None = None) -> None:
        self.cut_off_at, self.rates = cut_off_at, list[float]()
        self.epochs = 0

    def __call__(self, recipe: Recipe, path: Path, title: str, callback: Callback, stop: StopRequest) -> Any:
        self.rates.append(recipe.training.lr)
        assert title == f"training.lr={recipe.training.lr:.4g}"
        if len(self.rates) == self.cut_off_at:
            raise KeyboardInterrupt
        run = RunFolder(path)
        path.mkdir(parents=True, exist_ok=True)
        run.cut_log(0)
        for epoch in range(4):
            entry: Any = {
                "epoch": epoch, "phase": "train", "phase_epoch": epoch, "stage": "sparse", "lr": 0.1, "loss": 1.0,
                "train_accuracy": 0.5, "test_accuracy": 0.5, "test_loss": 1.0, "kept": 1, "seconds": 0.0,
                "validation_accuracy": max(0.0, 1 - recipe.training.lr),
            }  # fmt: skip
            run.append_log(entry)
            callback.finished_epoch(entry)
            self.epochs += 1
            if stop.requested():
                raise Stopped(stop.reason)
        return {}


def test_the_best_trial_is_the_one_with_the_highest_accuracy(tmp_path: Path) -> None:
    made, search = Made(), study(tmp_path)
    search.run(8, made, StopRequest())
    assert len(search.finished()) == 8 == len(made.rates)
    best = search.best()
    assert best is not None
    assert best.values["training.lr"] == min(made.rates)
    assert best.accuracy == pytest.approx(1 - min(made.rates))


def test_hopeless_trials_are_ended_early(tmp_path: Path) -> None:
    made, search = Made(), study(tmp_path)
    search.run(30, made, StopRequest())
    pruned = [trial for trial in search.finished() if trial.accuracy is None]
    assert pruned
    assert {trial.state for trial in pruned} == {"PRUNED"}
    assert made.epochs < 4 * 30
    worst = min(trial.values["training.lr"] for trial in pruned)
    assert worst > min(made.rates)


def test_a_trial_that_was_cut_off_is_proposed_again(tmp_path: Path) -> None:
    cut = Made(cut_off_at=3)
    with pytest.raises(KeyboardInterrupt):
        study(tmp_path).run(5, cut, StopRequest())
    made, again = Made(), study(tmp_path)
    assert len(again.finished()) == 2
    again.run(5, made, StopRequest())
    assert made.rates[0] == cut.rates[2]
    assert len(made.rates) == 3
    assert len({*cut.rates, *made.rates}) == 5  # nothing is proposed twice
    assert [trial.number for trial in again.finished()] == [1, 2, 3, 4, 5]  # the one that was cut off is not counted
    study(tmp_path).run(5, made, StopRequest())
    assert len(made.rates) == 3


def test_a_users_stop_ends_the_search_and_keeps_the_trial(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.stop("SIGINT")
    made, search = Made(), study(tmp_path)
    with pytest.raises(Stopped, match="SIGINT"):
        search.run(3, made, stop)
    assert search.finished() == []
    assert HOPELESS != "SIGINT"


def test_a_line_that_a_kill_has_cut_off_is_left_out(tmp_path: Path) -> None:
    study(tmp_path).run(2, Made(), StopRequest())
    journal = tmp_path / JOURNAL
    whole = journal.read_text()
    journal.write_text(whole + '{"op_code": 4')
    assert len(study(tmp_path).finished()) == 2
    assert journal.read_text().startswith(whole)


@pytest.mark.parametrize("content", ["garbage\n", "{}\n", "[1, 2]\n", '{"op_code": 99}\n', "[" * 100_000 + "\n"])
def test_what_is_no_journal_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / JOURNAL).write_text(content)
    with pytest.raises(RunError, match="is no journal of a search"):
        study(tmp_path)


def test_another_search_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    study(tmp_path)
    with pytest.raises(RunError, match="is of another recipe or other ranges"):
        study(tmp_path, space=[Range.parse("training.lr=0.01..0.5")])
    with pytest.raises(OptionError, match="needs an option to vary"):
        Study(tmp_path, [], small())


def test_ranges() -> None:
    assert Range.parse("method.start=2..8") == Range("method.start", low=2, high=8, whole=True)
    assert Range.parse("method.growth=1.1..1.4:log") == Range("method.growth", low=1.1, high=1.4, log=True)
    assert Range.parse("training.nesterov=true,false").choices == (True, False)
    for text in ("growth=1..2", "method.growth", "method.growth=2..1", "method.growth=0..1:log", "method.growth=a..b"):
        with pytest.raises(OptionError, match="`--search` expects TABLE"):
            Range.parse(text)

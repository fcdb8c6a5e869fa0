"""Penalty gradients at epochs, and epochs to the final mask, of small runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hypersparse.analysis.finished_runs import load
from hypersparse.analysis.paper import recipe_of, table
from hypersparse.errors import OptionError, RunError
from hypersparse.runs.store import RunStore
from reproduction.__main__ import app
from reproduction.figures import epochs, gradients
from tests.analysis.small import record, write
from tests.analysis.test_analyses import drawn
from tests.stored import whole_entry, whole_result


def test_gradients_at_chosen_epochs(tmp_path: Path) -> None:
    result = gradients.analyze_run(write(tmp_path))
    assert result.data["epoch"].unique().tolist() == [0]
    assert result.data["gradient"].tolist() == [1.2, 1.0, 0.1]
    assert set(drawn(result)) == {"hypersparse", "l1"}
    with pytest.raises(OptionError, match=r"Regularized epoch 7 was not recorded; choose from 0 "):
        gradients.analyze_run(write(tmp_path, seed=1), [7])
    empty = write(tmp_path, seed=2, arrays=record(curve_epochs=np.zeros(0, dtype=int)))
    with pytest.raises(RunError, match="no curves"):
        gradients.analyze_run(empty)


def test_curves_are_of_the_least_sparse_run_of_each_model(tmp_path: Path) -> None:
    runs = [write(tmp_path, sparsity=0.98), write(tmp_path, seed=1), write(tmp_path, method="dense"), write(tmp_path)]
    (found,) = gradients.analyze([*runs, write(tmp_path, sparsity=0.5, method_options={"penalty": "l1"})])
    assert found.name == "gradients-digits-resnet8"
    assert found.data.equals(gradients.analyze_run(runs[-1]).data)
    assert gradients.analyze(runs[2:3]) == []


def test_epochs_to_the_final_mask(tmp_path: Path) -> None:
    result = epochs.analyze(
        [write(tmp_path), write(tmp_path, seed=1), write(tmp_path, method_options={"penalty": "l1"})]
    )
    summary = result.tables["epochs-summary"]
    assert summary[["variant", "epochs", "seeds"]].to_numpy().tolist() == [["art hypersparse", 2, 2], ["art l1", 2, 1]]
    assert summary["paper"].isna().all()
    assert drawn(result) == []  # error bars have their names elsewhere; the paper's mark is not there
    run = write(tmp_path, method="snip", epochs={"train": 2})
    with pytest.raises(RunError, match="None of these runs has a regularized phase"):
        epochs.analyze([run])


def test_the_papers_epochs_stand_beside_runs_as_in_its_recipe_only(tmp_path: Path) -> None:
    cell = next(cell for cell in table("regularized_epochs").itertuples() if cell.penalty == "l1")
    usual = recipe_of(cell)
    other = replace(usual, training=replace(usual.training, epochs=9))
    runs = []
    for recipe in (usual, other):
        folder = RunStore(tmp_path).folder(recipe, 0)
        folder.path.mkdir(parents=True)
        folder.write_recipe(recipe, 0)
        folder.append_log(whole_entry(phase="regularize", best_epoch=0))
        folder.write_result(whole_result(epochs={"regularize": 1}))
        runs += load([folder.path])
    summary = epochs.analyze(runs).tables["epochs-summary"].set_index("variant")
    assert summary.loc["art l1", "paper"] == cell.epochs_mean
    assert pd.isna(summary.loc["art l1, epochs=9", "paper"])
    alone = epochs.analyze(runs[1:]).tables["epochs-summary"]
    assert alone["paper"].isna().all()  # though no name is needed to tell it apart


def test_the_only_penalty_of_a_row_stands_on_it(tmp_path: Path) -> None:
    penalties = [{"penalty": name} for name in ("hypersparse", "l1", "l2")]
    runs = [write(tmp_path, method_options=each) for each in penalties] + [write(tmp_path, sparsity=0.98)]
    (axes,) = epochs.analyze(runs).figure.axes
    places = sorted(
        float(value) for line in axes.lines if len(line.get_xdata()) for value in np.atleast_1d(line.get_ydata())
    )
    assert sorted(set(places)) == pytest.approx([0.9, 1.9, 2.9, 4.7])


@pytest.mark.parametrize("which", ["gradients", "epochs", "finetuning"])
def test_every_command_writes_its_files(which: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        write(tmp_path / "runs", seed=seed)
    words = [which, "--runs-dir", str(tmp_path / "runs"), "-o", str(tmp_path / "figures")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    for suffix in ("png", "svg", "csv"):
        assert list((tmp_path / "figures").glob(f"{which}*.{suffix}"))


def test_of_all_runs_those_without_curves_are_left_out(tmp_path: Path) -> None:
    bare = write(tmp_path / "runs", method="dense", arrays=record(curve_epochs=np.zeros(0, dtype=int)))
    words = ["gradients", "--runs-dir", str(tmp_path / "runs"), "-o", str(tmp_path / "figures")]
    with pytest.raises(RunError, match="None of these runs has curves"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    write(tmp_path / "runs", seed=1)
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert len(list((tmp_path / "figures").glob("*.png"))) == 1
    with pytest.raises(RunError, match="no curves in its record"):  # that one was asked for
        CliRunner().invoke(app, [*words, str(bare.folder.path)], catch_exceptions=False)


def test_epochs_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(OptionError, match="whole numbers with commas"):
        CliRunner().invoke(app, ["gradients", "--epochs", "a", "--runs-dir", str(tmp_path)], catch_exceptions=False)

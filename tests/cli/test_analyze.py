from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hypersparse.cli.main import app
from hypersparse.errors import OptionError, RunError
from tests.analysis.small import record, write

EVERY = (
    "gradients",
    "intersection",
    "layers",
    "epochs",
    "finetuning",
    "accuracy",
    "crossing",
    "effective",
    "agreement",
    "classes",
)


@pytest.mark.parametrize("which", EVERY)
def test_every_analysis_writes_its_files(which: str, tmp_path: Path) -> None:
    write(tmp_path / "runs")
    write(tmp_path / "runs", seed=1)
    arguments = ["analyze", which, "--runs-dir", str(tmp_path / "runs"), "-o", str(tmp_path / "figures")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    for suffix in ("png", "svg", "csv"):
        assert list((tmp_path / "figures").glob(f"{which}*.{suffix}"))


@pytest.mark.parametrize("which", EVERY)
def test_data_in_a_folder_of_their_own_are_drawn_too(which: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        file = write(tmp_path / "runs", seed=seed).folder.recipe_file
        file.write_text(file.read_text().replace('name = "digits"', 'name = "/my data/faces.npz"'))
    words = ["analyze", which, "--runs-dir", str(tmp_path / "runs"), "-o", str(tmp_path / "figures")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert len(list((tmp_path / "figures").glob(f"{which}*.png"))) in (1, 2)


def test_of_all_runs_those_without_curves_are_left_out(tmp_path: Path) -> None:
    bare = write(tmp_path / "runs", method="dense", arrays=record(curve_epochs=np.zeros(0, dtype=int)))
    words = ["analyze", "gradients", "--runs-dir", str(tmp_path / "runs"), "-o", str(tmp_path / "figures")]
    with pytest.raises(RunError, match="None of these runs has curves"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    write(tmp_path / "runs", seed=1)
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert len(list((tmp_path / "figures").glob("*.png"))) == 1
    with pytest.raises(RunError, match="no curves in its record"):  # that one was asked for
        CliRunner().invoke(app, [*words, str(bare.folder.path)], catch_exceptions=False)


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="None of these runs is finished"):
        CliRunner().invoke(app, ["analyze", "layers", "--runs-dir", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(RunError, match="There is no run `nothing`"):
        CliRunner().invoke(app, ["analyze", "layers", "nothing", "--runs-dir", str(tmp_path)], catch_exceptions=False)
    write(tmp_path)
    arguments = ["analyze", "gradients", "--epochs", "a", "--runs-dir", str(tmp_path)]
    with pytest.raises(OptionError, match="whole numbers with commas"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypersparse.cli.main import app
from hypersparse.errors import RunError
from tests.analysis.small import write

EVERY = (
    "intersection",
    "layers",
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


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="None of these runs is finished"):
        CliRunner().invoke(app, ["analyze", "layers", "--runs-dir", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(RunError, match="There is no run `nothing`"):
        CliRunner().invoke(app, ["analyze", "layers", "nothing", "--runs-dir", str(tmp_path)], catch_exceptions=False)

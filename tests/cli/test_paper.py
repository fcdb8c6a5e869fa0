"""`hypersparse paper` in all its formats, on the results of the repository."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypersparse.analysis.headline import BEGIN, END
from hypersparse.cli.main import app
from hypersparse.errors import OptionError, RunError

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("which", ["accuracy", "epochs", "intersection"])
@pytest.mark.parametrize("format", ["table", "md", "csv", "latex", "html"])
def test_every_format(which: str, format: str) -> None:
    done = CliRunner().invoke(app, ["paper", which, "--results", str(RESULTS), "--format", format])
    assert done.exit_code == 0, done.output
    assert which == "intersection" or "cifar10" in done.output  # no stored run has what an intersection needs yet
    mark = {"table": "missing", "md": "| --- |", "csv": "seeds", "latex": r"\begin{tabular}", "html": "<table"}[format]
    assert mark in done.output


def test_what_does_not_exist_is_said() -> None:
    for arguments in (["accurracy"], ["--format", "docx"]):
        done = CliRunner().invoke(app, ["paper", *arguments])
        assert isinstance(done.exception, OptionError)


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["paper", "--results", str(tmp_path / "none")])
    assert isinstance(done.exception, RunError)


def test_without_results_everything_is_missing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["paper", "--results", str(tmp_path)])
    assert done.output.strip() == "366 missing"


def test_a_headline_goes_with_a_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["paper", "--results", str(RESULTS), "--readme", str(tmp_path / "README.md")])
    assert isinstance(done.exception, OptionError)
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}\n")
    words = ["--page", str(tmp_path / "page.md"), "--readme", str(tmp_path / "README.md")]
    done = CliRunner().invoke(app, ["paper", "--results", str(RESULTS), *words])
    assert done.exit_code == 0, done.output
    assert "](page/headline.png)" in (tmp_path / "README.md").read_text()


def test_a_page_is_written_with_its_figures(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["paper", "--results", str(RESULTS), "--page", str(tmp_path / "page.md")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "page.md").read_text().startswith("# Reproduction")
    assert list((tmp_path / "page").glob("*.png"))

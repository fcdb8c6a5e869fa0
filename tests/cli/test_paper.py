"""`hypersparse paper` in all its formats, on the results of the repository."""

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hypersparse.cli import paper as module
from hypersparse.cli.main import app
from hypersparse.errors import OptionError, RunError

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("which", ["accuracy", "epochs", "intersection", "variants"])
@pytest.mark.parametrize("format", ["table", "md", "csv", "latex", "html"])
def test_every_format(which: str, format: str) -> None:
    done = CliRunner().invoke(app, ["paper", which, "--results", str(RESULTS), "--format", format])
    assert done.exit_code == 0, done.output
    assert "cifar10" in done.output
    assert format == "csv" or "_" not in done.output
    mark = {"table": "missing", "md": "| --- |", "csv": "seeds", "latex": r"\begin{tabular}", "html": "<table"}[format]
    assert mark in done.output


def test_variants_in_a_terminal_have_their_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "table_console", lambda: Console(width=120))
    done = CliRunner().invoke(app, ["paper", "variants", "--results", str(RESULTS)])
    lines = done.output.splitlines()
    assert "…" not in done.output
    assert any(line.rstrip() == "cifar10, resnet32, 0.998" for line in lines)  # once, above its variants
    (row,) = [number for number, line in enumerate(lines) if "+0.76 (-1.09 to 2.60)" in line]
    assert lines[row].startswith("art hypersparse, without")
    assert "growth=1.03" in lines[row] + lines[row + 1]  # wrap_label, not cut
    assert max(map(len, lines)) <= 120


def test_the_help_says_where_results_lie() -> None:
    done = CliRunner().invoke(app, ["paper", "--help"], env={"COLUMNS": "200"})
    assert "the folder `results` by default" in done.output


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

"""Tables on a terminal and in a pipe."""

import pytest
from rich.table import Table

from hypersparse.cli.console import table_console


def wide() -> Table:
    table = Table(*(f"column {number}" for number in range(16)), box=None)
    table.add_row(*["0.123456"] * 16)
    return table


def test_no_column_is_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    table_console().print(wide())
    said = capsys.readouterr().out
    assert said.count("0.123456") == 16
    assert len(said.splitlines()) == 2


def test_a_terminal_keeps_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert table_console().width == 80

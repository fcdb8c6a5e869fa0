"""Tables on a terminal and in a pipe."""

import io

import pytest
from rich.table import Table

from hypersparse.cli.console import Console, table_console


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


def test_a_file_with_forced_colors_is_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as notebooks do
    console = Console(file=io.StringIO())
    assert console.is_terminal
    assert not console.is_screen


def test_no_text_of_a_file_tells_the_terminal_what_to_do() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=80, legacy_windows=False)
    table = Table("a\x1b]0;title\x07")
    table.add_row("b\x1b[2Jc\x9b")
    console.print(table)
    console.print("plain\x1b]52;c;aGk=\x07", markup=False)
    console.print("[bold]marked\r\x08[/]\ttab")
    assert not set(out.getvalue()) & set("\x1b\x07\x9b\r\x08")
    assert "plain?]52;c;aGk=\n" in out.getvalue()

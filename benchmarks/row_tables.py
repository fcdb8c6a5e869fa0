"""Rows of a benchmark as a table."""

from collections.abc import Iterable, Mapping, Sequence

from hypersparse.cli.console import table, table_console

TEXTS = (
    "name",
    "arithmetic",
    "processor",
    "model",
    "phase",
    "kind",
    "engine",
    "mask",
    "images",
    "loop",
)  # columns; the others are numbers


def print_rows(lines: Sequence[Mapping[str, str]], sentences: Iterable[str], *, title: str | None = None) -> None:
    """The rows as a table without empty columns, and sentences below it."""
    console = table_console()
    names = [name for name in (lines[0] if lines else ()) if any(line[name] for line in lines)]
    if lines:
        columns = (name if name in TEXTS else f">{name}" for name in names)
        rows = [[line[name] for name in names] for line in lines]
        console.print(table(*columns, rows=rows, title=title, title_justify="left"))
    for sentence in sentences:
        console.say(sentence)

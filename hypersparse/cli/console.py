"""Where tables are printed."""

from rich.console import Console

WIDE = 200  # columns of a file or a pipe, which has no width


def table_console(*, highlight: bool = True) -> Console:
    """Standard output; where it is no terminal, wide enough that no column is cut."""
    console = Console(highlight=highlight)
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    return console

"""Console output: text of files is printed as text, and tables share one style."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
WIDE = 200  # columns of a file or a pipe, which has no width
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # characters that a terminal obeys instead of showing


class Console(rich.console.Console):
    """A console that replaces control characters in printed text by question marks."""

    @property
    def is_screen(self) -> bool:
        """Whether someone sees a line change. Notebooks force colors into files, which makes `is_terminal` true."""
        return self.is_terminal and self.file.isatty()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments to print; rich's own control codes are kept."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else CONTROL.sub("?", text), style, control)

    def say(self, text: str, *, style: str = "", label: str = "") -> None:
        """Print a line of plain text, without wrapping or markup. `style` applies to the label if there is one."""
        line = Text.assemble((f"{label} ", style), text) if label else Text(text, style)
        self.print(line, soft_wrap=True)


def table_console(*, highlight: bool = True) -> Console:
    """Standard output; at least 200 columns wide if it is not a terminal, so that no column is cut."""
    console = Console(highlight=highlight)
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    return console


def print_json(value: Any) -> None:
    """Print a value for other programs."""
    print(json.dumps(value, indent=1))


def table(*columns: str, rows: Iterable[Sequence[str]] = (), **settings: Any) -> Table:
    """A table without lines. A column whose name begins with `>` holds numbers: right-aligned, never wrapped."""
    made = Table(box=None, pad_edge=False, header_style="dim", **{"caption_justify": "left", **settings})
    for name in columns:
        if name.startswith(">"):
            made.add_column(name[1:], justify="right", no_wrap=True)
        else:
            made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made

"""Where commands print."""

import re
from collections.abc import Iterator

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

WIDE = 200  # columns of a file or a pipe, which has no width
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # by a terminal, which shows none of them


class Console(rich.console.Console):
    """Prints texts of files as text: of what a terminal would obey, a question mark is left."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The pieces to print; what rich itself tells the terminal stays."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else OBEYED.sub("?", text), style, control)


def table_console(*, highlight: bool = True) -> Console:
    """Standard output; where it is no terminal, wide enough that no column is cut."""
    console = Console(highlight=highlight)
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    return console

"""The progress bar of the benchmarks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from benchmarks.timing import Case
from hypersparse.cli.console import Console


class TimeLeft(ProgressColumn):
    """The longest time that is left, where it is known."""

    def render(self, task: Task) -> Text:
        """Minutes and seconds."""
        if "end" not in task.fields:
            return Text()
        left = max(0, round(task.fields["end"] - time.monotonic()))
        return Text(f"at most {left // 60}:{left % 60:02} left")


class Bar:
    """A progress bar over the cases on stderr, and a line for each."""

    def __init__(self, progress: Progress, cases: int) -> None:
        self.progress, self.task = progress, progress.add_task("loading", total=cases)

    def expects(self, seconds: float) -> None:
        """All cases that are left take at most this time."""
        self.progress.update(self.task, end=time.monotonic() + seconds)

    def began(self, case: Case) -> None:
        """A case begins."""
        self.progress.update(self.task, description=case.title)

    def ended(self, case: Case, seconds: float) -> None:
        """A case was measured."""
        self.progress.console.print(f"{seconds:6.1f} s  {case.title}", highlight=False)
        self.progress.advance(self.task)


@contextmanager
def progress_bar(cases: int) -> Iterator[Bar]:
    """A bar over this number of cases."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeLeft())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, cases)

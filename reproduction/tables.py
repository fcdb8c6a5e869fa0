"""Tables of the page: cells with runs, number of missing ones, and a folded list of every cell."""

from collections.abc import Sequence

import pandas as pd

from hypersparse.analysis.tables import column_title, count_verdicts, format_cells, mark_missing, render
from reproduction.coverage import coverage


def cell_table(frame: pd.DataFrame, covered: str | None) -> list[str]:
    """The cells with runs and a count of the others; with `covered`, also that column of every cell."""
    shown = frame[frame["seeds"] > 0] if covered else frame
    rows = markdown(shown, mark_missing(format_cells(shown))) if len(shown) else []
    lines = [*rows, *([""] if rows else []), f"{counted(frame).capitalize()}"]
    if covered is None:
        return lines
    summary = f"Every cell: <code>{column_title(covered)}</code>, number of seeds in brackets"
    return [*lines, "", *details(summary, markdown(coverage(frame, covered)))]


def counted(frame: pd.DataFrame) -> str:
    """How many cells there are, by their verdict."""
    return f"{len(frame)} cells, {count_verdicts(frame)}."


def markdown(frame: pd.DataFrame, shown: pd.DataFrame | None = None) -> list[str]:
    """The lines of a Markdown table."""
    return render(frame, frame if shown is None else shown, "md").splitlines()


def details(summary: str, lines: Sequence[str]) -> list[str]:
    """Folded Markdown under a summary, which may contain HTML."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]

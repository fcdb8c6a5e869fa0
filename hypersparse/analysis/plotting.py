"""Style of the figures, and their files."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

import pandas as pd
from matplotlib import rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from hypersparse.storage.files import make_folder, write_atomically, write_text

BLUE, ORANGE, GREEN, PURPLE, RED = "#0072B2", "#D55E00", "#009E73", "#882D91", "#B3123B"  # told apart by everyone
GREY, FAINT, PALE = "#555555", "#C4C9CF", "#E6ECF2"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#8C6D00", "#56B4E9", GREY)
MARKERS = "osD^vPX*<>hd"  # so that lines are told apart without colour too
COLUMN, PAGE = 3.5, 7.0  # widths in inches: a column of a paper, and a page
DPI = 200
LETTERS_AN_INCH, TITLE_LINES = 12, 2  # of a title
NO_BREAK = "\u00a0"
LONGEST_NAME = 36  # letters of a line in a legend
TICK_GAP = 1.0  # pixels between two numbers of an axis, at least
ABOVE_AND_BELOW = 1.05  # inches of a figure for a title of two lines and the words below its axes
SHORT_NAME, FEW_NAMES = 16, 3  # letters and lines of a legend beside which a column has room for the axes
TEXT = 8.0  # points; readable where the figure is a column wide


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """The result of an analysis: a figure and its numbers."""

    name: str  # of its files
    figure: Figure
    data: pd.DataFrame  # what is drawn, one row a point
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # its main numbers, by name


def file_name(*words: str) -> str:
    """A file name made of these words; a data set may be a path.

    >>> file_name("layers", "my data/faces.npz", "mlp")
    'layers-my_data_faces.npz-mlp'
    """
    return re.sub(r"[^\w.,:=+-]+", "_", "-".join(words))


def class_label(name: str) -> str:
    """A class name with spaces, as for `pickup_truck`.

    >>> class_label("pickup_truck")
    'pickup truck'
    """
    return without_math(name.replace("_", " "))


def without_math(text: str) -> str:
    r"""A text of somebody else's as it stands: between dollars Matplotlib would read a formula, or fail to.

    >>> without_math("from $5 to $9")
    'from \\$5 to \\$9'
    """
    return text.replace("$", r"\$")


def use_own_settings() -> None:
    """Draw as the package means it: a `matplotlibrc` in the current folder may be a stranger's, and may start LaTeX."""
    rcdefaults()


def panels(
    rows: int = 1, columns: int = 1, *, width: float = COLUMN, height: float = 2.6, **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """An empty figure and its axes, as an array of rows and columns."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes: NDArray[Any] = figure.subplots(rows, columns, squeeze=False, **options)
    for each in axes.flat:
        style_axes(each)
    return figure, axes


def style_axes(axes: Axes) -> None:
    """Two spines, a faint grid, small text."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=TEXT - 1)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(TEXT)


def sparsity_axis(axes: Axes, sparsities: "pd.Series[float]") -> None:
    """A logarithmic axis of the density, labelled with these sparsities, the sparsest at the right."""
    densities = sorted({round(1 - sparsity, 6) for sparsity in sparsities.dropna()}, reverse=True)
    axes.set_xlabel("sparsity", fontsize=TEXT)
    if not densities:  # of dense networks only
        return
    axes.set_xlim(1.15 * densities[0], densities[-1] / 1.15)  # before the scale, which widens a single place
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(densities))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda density, _: f"{100 * (1 - density):g} %"))


def title(figure: Figure, text: str) -> None:
    """Set a left-aligned title; text beyond two lines is cut off."""
    whole = text.replace(" %", f"{NO_BREAK}%")  # a number stays with its sign
    lines = fill(whole, _letters(figure.get_figwidth()), max_lines=TITLE_LINES, placeholder=" ...")
    figure.suptitle(without_math(lines.replace(NO_BREAK, " ")), x=0.01, ha="left", fontsize=TEXT + 1, fontweight="bold")


def legend(axes: Axes, **options: Any) -> None:
    """A legend without a frame, in small text; none if no line has a label."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:  # the name of a run with many options of its own would take the place of the figure
        short = [wrap_label(label) for label in labels]
        axes.legend(handles, short, **({"frameon": False, "fontsize": TEXT - 1} | options))


def legend_right(axes: Axes, **options: Any) -> None:
    """A legend right of the axes; the figure grows with it."""
    legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), **options)
    names, figure = axes.get_legend(), axes.figure
    if names is not None and isinstance(figure, Figure):  # names that do not fit are cut off, and leave axes no height
        height = names.get_window_extent().height / figure.dpi + ABOVE_AND_BELOW
        figure.set_figheight(max(height, figure.get_figheight()))


def thin_ticks(figure: Figure) -> None:
    """Drop every second tick label of an x axis until no labels overlap.

    To be called last: how much room there is depends on the legend and the title.
    """
    for axes in figure.axes:
        while _ticks_touch(figure, axes):
            low, high = sorted(axes.get_xlim())
            inside = [place for place in axes.get_xticks() if low <= place <= high]
            axes.xaxis.set_major_locator(FixedLocator(inside[::2]))


def _ticks_touch(figure: Figure, axes: Axes) -> bool:
    figure.draw_without_rendering()
    low, high = sorted(axes.get_xlim())
    shown = [label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high and label.get_text()]
    boxes = sorted((label.get_window_extent() for label in shown), key=lambda box: box.x0)
    return any(one.x1 + TICK_GAP > other.x0 for one, other in pairwise(boxes))


def wrap_label(name: str) -> str:
    """A long label on several lines, so that it leaves room for the axes."""
    return without_math(fill(name, LONGEST_NAME, break_on_hyphens=False))


def title_width(text: str) -> float:
    """The width of a column, or of a page if this title would be cut off in a column."""
    return COLUMN if len(wrap(text, _letters(COLUMN))) <= TITLE_LINES else PAGE


def legend_width(names: Collection[str]) -> float:
    """The width of a column, or of a page if a legend of these names would fill a column."""
    fits = len(names) <= FEW_NAMES and all(len(name) <= SHORT_NAME for name in names)
    return COLUMN if fits else PAGE


def line_styles(count: int) -> list[dict[str, Any]]:
    """Colour, marker and line style of `count` lines; repeated colours are dashed."""
    return [
        {
            "color": COLORS[number % len(COLORS)],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": ("-", "--", ":")[number // len(COLORS) % 3],
        }
        for number in range(count)
    ]


def write(folder: Path, result: AnalysisResult) -> list[Path]:
    """The figure as PNG and SVG, its data and its tables as CSV; files appear by rename."""
    figures = [write_figure(folder, result, suffix) for suffix in ("png", "svg")]
    return [*figures, *write_tables(folder, {result.name: result.data, **result.tables})]


def write_figure(folder: Path, result: AnalysisResult, suffix: str) -> Path:
    """The figure in one format, `png` or `svg`."""
    make_folder(folder)
    path = folder / f"{result.name}.{suffix}"
    save_figure(result.figure, path)
    return path


def save_figure(figure: Figure, path: Path) -> None:
    """A figure in the format of the path's suffix; the same figure makes the same file."""
    suffix = path.suffix.removeprefix(".")
    dateless: dict[str, Any] = {"metadata": {"Date": None}} if suffix == "svg" else {}
    with rc_context({"svg.hashsalt": "hypersparse"}):
        write_atomically(path, lambda beside: figure.savefig(beside, format=suffix, dpi=DPI, **dateless))


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> list[Path]:
    """Tables as CSV files of their names."""
    make_folder(folder)
    paths = {name: folder / f"{name}.csv" for name in tables}
    for name, frame in tables.items():
        write_text(paths[name], frame.to_csv(index=False))
    return list(paths.values())


def _letters(width: float) -> int:
    """Letters on a line of a title."""
    return int(LETTERS_AN_INCH * width)

"""`draw`: one run as a figure: accuracy over epochs, the penalty, and the weights kept per layer."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator

from hypersparse.analysis.layers import LayerWeights, layer_weights
from hypersparse.analysis.plotting import BLUE, FAINT, GREEN, GREY, ORANGE, PURPLE, RED, without_math
from hypersparse.errors import RunError
from hypersparse.plurals import how_many
from hypersparse.runs.run_listing import RunRow, row_of
from hypersparse.storage.files import write_atomically
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, number_of
from hypersparse.training.result import accuracy

SHADES = ("#F4F6F8", "#E6ECF2")  # of the phases, in turn
WIDTH, TOP, MIDDLE, TITLE = 10.0, 3.6, 1.7, 0.9  # inches
ROW = 0.22  # inches for a layer
DPI = 130
LETTER = 0.0105  # width of a letter, as a fraction of the axes where names and counts of layers take their part

Span = tuple[str, int, int]  # phase, first epoch, last epoch


def save(run: RunFolder, png: Path) -> None:
    """Draw a run into a PNG file, which appears by rename."""
    figure = draw(run)
    write_atomically(png, lambda beside: figure.savefig(beside, format="png", dpi=DPI))


def draw(run: RunFolder) -> Figure:
    """The figure of one run, finished or not."""
    entries, row, bars = run.log(), row_of(run), layer_weights(run)
    if row.status == "damaged":
        raise RunError(f"{run.path} is damaged and cannot be drawn: {row.problem}")
    if not entries:
        raise RunError(f"{run.path} has not finished an epoch yet, so there is nothing to draw.")
    regularized = any("strength" in entry or "w_kappa" in entry for entry in entries)
    heights = [TOP, *([MIDDLE] if regularized else []), *([0.7 + ROW * len(bars)] if bars else [])]
    figure = Figure(figsize=(WIDTH, sum(heights) + TITLE), layout="constrained")
    FigureCanvasAgg(figure)
    panels = iter(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    spans = phase_spans(entries)
    _draw_accuracy(next(panels), entries, spans)
    if regularized:
        _draw_penalty(next(panels), entries, spans)
    if bars:
        _draw_layers(next(panels), bars)
    figure.suptitle(_title(row), x=0.01, ha="left", fontsize=10, linespacing=1.5)
    return figure


def phase_spans(entries: Sequence[Entry]) -> list[Span]:
    """The phases with their first and last epoch, in order."""
    spans = []
    for name, group in groupby(entries, key=lambda entry: str(entry["phase"])):
        epochs = [int(entry["epoch"]) for entry in group]
        spans.append((name, epochs[0], epochs[-1]))
    return spans


def _title(row: RunRow) -> str:
    pieces = [row.state]
    if row.sparse_last is not None:
        pieces.append(f"sparse {100 * row.sparse_last:.2f} % in the last epoch")
    if row.dense_last is not None:
        pieces.append(f"dense {100 * row.dense_last:.2f} %")
    if row.kept is not None and row.total:
        share = f"{row.kept:,} of {row.total:,} weights kept ({100 * row.kept / row.total:.3g} %)"
        pieces.append(share if row.kept < row.total else f"all {row.total:,} weights kept")
    return without_math(f"{row.label}, seed {row.seed}\n{' · '.join(pieces)}")


def _draw_accuracy(axes: Axes, entries: Sequence[Entry], spans: Sequence[Span]) -> None:
    _shade(axes, spans)
    _name_phases(axes, spans)
    lines = [
        ("train_accuracy", "train", BLUE, "-", 1.3),
        ("dense_score", "dense score (training images)", BLUE, ":", 2.2),
        ("pruned_score", "pruned score (training images)", GREEN, "-", 1.8),
        ("validation_accuracy", "validation", PURPLE, "-", 1.3),
        ("test_accuracy", "test", ORANGE, "-", 1.6),
    ]
    for key, label, color, style, width in lines:
        epochs, values = _series(entries, key)
        if epochs:
            percent = [100 * value for value in values]
            axes.plot(epochs, percent, style, color=color, label=label, linewidth=width, marker=_marker(epochs))
    _mark_test(axes, entries)
    axes.set_ylim(0, 102)
    axes.set_ylabel("accuracy in %", fontsize=9)
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False)
    _epochs_below(axes)


def _mark_test(axes: Axes, entries: Sequence[Entry]) -> None:
    """Mark the test accuracy of the last epoch, and of the best epoch with the same sparsity."""
    picked_on = "validation_accuracy" if "validation_accuracy" in entries[-1] else "test_accuracy"
    last = entries[-1]
    alike = [entry for entry in entries if entry["stage"] == last["stage"] and entry["kept"] <= last["kept"]]
    best = max(alike, key=lambda entry: accuracy(entry, picked_on))
    where = picked_on.removesuffix("_accuracy")
    marks = [(best, "white", f"best (picked on {where})"), (last, ORANGE, "last")]
    for entry, face, words in marks if last["stage"] != "penalized" else marks[1:]:
        height = 100 * entry["test_accuracy"]
        label = f"{words}: {height:.2f} %, epoch {entry['epoch']}"
        axes.plot(entry["epoch"], height, "o", color=ORANGE, markerfacecolor=face, label=label, zorder=5, clip_on=False)


def _draw_penalty(axes: Axes, entries: Sequence[Entry], spans: Sequence[Span]) -> None:
    _shade(axes, spans)
    _epochs_below(axes)
    sides = iter((axes, axes.twinx()))
    for key, label, color in (
        ("strength", "penalty strength", RED),
        ("w_kappa", "smallest kept $|w_\\kappa|$", GREEN),
    ):
        side = next(sides)
        epochs, values = _series([entry for entry in entries if (number_of(entry, key) or 0) > 0], key)  # log scale
        side.spines[["top", "right"]].set_visible(False)
        if not epochs:
            side.set_yticks([])
            continue
        side.semilogy(epochs, values, color=color, linewidth=1.6, marker=_marker(epochs))
        side.set_ylabel(label, color=color, fontsize=9)
        side.tick_params(axis="y", labelsize=8, colors=color)
        side.yaxis.set_major_locator(_ticks(max(values) / min(values)))
        side.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        side.yaxis.set_minor_locator(NullLocator())


def _ticks(ratio: float) -> Locator:
    """About four ticks on a log scale of any range."""
    if ratio < 4:
        return MaxNLocator(4)
    return LogLocator(subs=(1, 2, 5) if ratio < 30 else (1,), numticks=6)


def _draw_layers(axes: Axes, bars: Sequence[LayerWeights]) -> None:
    places = range(len(bars))
    small = 8 if len(bars) <= 40 else 6
    known = all(layer.total for layer in bars)
    if known:
        axes.barh(places, [layer.total or 0 for layer in bars], facecolor="none", edgecolor=FAINT, height=0.78)
    axes.barh(places, [layer.kept for layer in bars], color=GREEN, height=0.78, alpha=0.85)
    axes.set_xscale("log")
    axes.set_xlim(0.7, 1.25 * max(layer.total or layer.kept or 1 for layer in bars))
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_yticks(places, [layer.name for layer in bars], fontsize=small)
    axes.tick_params(axis="y", length=0)
    for place, layer in zip(places, bars, strict=True):
        axes.annotate(
            _count(layer), (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=small, color=GREY
        )
    words = (
        "weights kept (filled) of all (outline)"
        if known
        else "weights that pruning would keep after the last regularized epoch"
    )
    axes.set_xlabel(f"{words}, log scale", fontsize=9)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _count(layer: LayerWeights) -> str:
    if not layer.total:
        return f"{layer.kept:,}"
    return f"{layer.kept:,} of {layer.total:,}  ({100 * layer.kept / layer.total:.2g} %)"


def _series(entries: Sequence[Entry], key: str) -> tuple[list[int], list[float]]:
    having = [(entry["epoch"], value) for entry in entries if (value := number_of(entry, key)) is not None]
    return [epoch for epoch, _ in having], [value for _, value in having]


def _marker(epochs: Sequence[Any]) -> str:
    return "." if len(epochs) < 8 else ""  # one epoch alone would be an invisible line


def _shade(axes: Axes, spans: Sequence[Span]) -> None:
    for number, (_, first, last) in enumerate(spans):
        axes.axvspan(first - 0.5, last + 0.5, color=SHADES[number % 2], zorder=0, linewidth=0)
    axes.set_xlim(spans[0][1] - 0.5, spans[-1][2] + 0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _name_phases(axes: Axes, spans: Sequence[Span]) -> None:
    """Phase names above the axes, one step higher where two would touch."""
    left, right = spans[0][1] - 0.5, spans[-1][2] + 0.5
    ends = [0.0, 0.0, 0.0]  # how far to the right each height is taken
    for name, first, last in spans:
        epochs = last - first + 1
        words = f"{name} ({how_many(epochs, 'epoch')})"
        half = len(words) * LETTER / 2
        center = min(max(((first + last) / 2 - left) / (right - left), half), 1 - half)
        height = next((height for height, end in enumerate(ends) if center - half >= end), None)
        if height is None:
            continue  # more short phases than names fit
        ends[height] = center + half + LETTER
        axes.text(center, 1.02 + 0.06 * height, words, transform=axes.transAxes, ha="center", fontsize=9, color=GREY)


def _epochs_below(axes: Axes) -> None:
    axes.set_xlabel("epoch", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=8)

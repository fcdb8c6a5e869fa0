"""Accuracy against sparsity, training compute and file size; effective weights; accuracy by class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from hypersparse.analysis import finished_runs as stored
from hypersparse.analysis import plotting as plot
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError
from hypersparse.analysis.plotting import AnalysisResult

COSTS = {
    "kept": "weights kept (%)",
    "training_flops": "training compute (dense FLOPs)",
    "final_bytes": "file size (bytes)",
}
MOST_CLASSES = 20  # drawn; of more, those at both ends
FEW_LEVELS = 4  # sparsities, of which a column has room for the names beside a legend
NEAR = 6  # largest to smallest, under which an axis has few of 1, 2, 5, 10, ...
WIDE = 60  # largest to smallest, above which only tens have room on an axis: more would run into each other
NAMED = {"kept": "weights kept", "training_flops": "training compute", "final_bytes": "file size"}


def accuracy(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """Accuracy of the last epoch against weights kept, training compute and file size; a figure for each data set."""
    ended = [run for run in runs if run.result["until"] is None and run.scores]
    if not ended:
        raise NoRunsError("None of these runs is complete; runs that end with the final mask have no accuracy.")
    return [_accuracy(plot.file_name("accuracy", data), own) for (data,), own in stored.group_by(ended, "data").items()]


def _accuracy(file: str, runs: Sequence[FinishedRun]) -> AnalysisResult:
    rows = []
    for run, group in zip(runs, stored.short_names(runs, "model"), strict=True):
        kept = 100 * run.result["kept"] / run.result["total"]
        costs = {"kept": kept, **{name: run.result.get(name) for name in ("training_flops", "final_bytes")}}
        part = run.scores
        accuracies = {"last": 100 * part["last"], "best": 100 * part["best"]} if part else {}  # all of them have some
        rows.append({**run.settings, "seed": run.seed, "group": group, **costs, **accuracies})
    frame = pd.DataFrame(rows)
    known = [cost for cost in COSTS if frame[cost].notna().any()]
    figure, axes = plot.panels(1, len(known), width=plot.PAGE, height=2.8, sharey=True)
    for each, cost in zip(axes[0], known, strict=True):
        _draw_cost(each, frame, cost)
    axes[0, 0].set_ylabel("test accuracy, last epoch (%)", fontsize=8)
    plot.legend_right(axes[0, -1])
    *first, last = (NAMED[cost] for cost in known)
    against = " and ".join([", ".join(first), last] if first else [last])
    plot.title(figure, f"Accuracy of {_of_what(runs)} against {against}")
    plot.thin_ticks(figure)
    return AnalysisResult(file, figure, frame)


def effective(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """Kept weights on a path from input to output; a figure for each data set."""
    known = [
        run for run in runs if run.result.get("effective_kept") is not None and run.result["kept"] < run.result["total"]
    ]
    if not known:
        raise NoRunsError("None of these runs stores its number of effective weights; train them with this version.")
    return [
        _effective(plot.file_name("effective", data), own) for (data,), own in stored.group_by(known, "data").items()
    ]


def _of_what(runs: Sequence[FinishedRun]) -> str:
    """The data of runs, and their model if there is only one."""
    models = {run.settings["model"] for run in runs}
    return stored.task_title(runs[0]) if len(models) == 1 else f"{len(models)} models on {stored.data_name(runs[0])}"


def _effective(file: str, runs: Sequence[FinishedRun]) -> AnalysisResult:
    rows = [
        {**run.settings, "seed": run.seed, "group": group, "kept": run.result["kept"],
         "effective": effective, "share": effective / run.result["kept"]}
        for run, group in zip(runs, stored.short_names(runs, "model"), strict=True)
        if (effective := run.result.get("effective_kept")) is not None
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    groups = list(dict.fromkeys(frame["group"]))
    many = frame["sparsity"].nunique() > FEW_LEVELS
    figure, ((axes,),) = plot.panels(width=plot.PAGE if many else plot.legend_width(groups))
    for group, style in zip(groups, plot.line_styles(len(groups)), strict=True):
        means = frame[frame["group"] == group].groupby("sparsity")["share"].mean()
        axes.plot(1 - means.index.to_numpy(), 100 * means, label=group, linewidth=1.2, markersize=4, **style)
    plot.sparsity_axis(axes, frame["sparsity"])
    axes.set_ylabel("kept weights on a path (%)", fontsize=8)
    plot.legend_right(axes)
    plot.title(figure, f"Kept weights on a path from input to output: {_of_what(runs)}")
    plot.thin_ticks(figure)
    return AnalysisResult(file, figure, frame)


def classes(runs: Sequence[FinishedRun], names: Sequence[str] | None = None) -> list[AnalysisResult]:
    """Accuracy by class in the last epoch, a figure for each variant, model and data set.

    Differences are from the dense runs of that model and data, or from the least sparse runs if there are none.
    """
    usable = [run for run in stored.with_records(runs) if run.result["until"] is None]
    if not usable:
        raise NoRunsError("None of these runs is complete and has a record; accuracy by class needs both.")
    found = []
    for place, here in stored.group_by(usable, "data", "model").items():
        dense = [run for run in here if run.result["sparse"] is None]
        for (variant,), members in stored.group_by([run for run in here if run not in dense], "variant").items():
            same = [run for run in dense if run.recipe.data == members[0].recipe.data]  # of a name alone may be others
            file = plot.file_name("classes", *place, variant.replace(", ", "-").replace(" ", "-"))
            found.append(_class_changes(file, same, members, names))
    if not found:
        raise NoRunsError("All of these runs are dense; pass sparse runs, with the dense one if there is one.")
    return found


def _class_changes(
    file: str, dense: Sequence[FinishedRun], runs: Sequence[FinishedRun], names: Sequence[str] | None
) -> AnalysisResult:
    count = len(runs[0].record["class_total"])
    known = (run.result.get("classes") for run in (*dense, *runs))  # runs of older versions have none
    names = names or next((each for each in known if each), None)
    names = list(names) if names and len(names) == count else [str(number) for number in range(count)]
    ordered = [*dense, *sorted(runs, key=lambda run: run.result["kept"], reverse=True)]
    frame = pd.DataFrame(
        [
            {**run.settings, "seed": run.seed, "kept": run.result["kept"], "class": name, "accuracy": accuracy}
            for run in ordered
            for name, accuracy in zip(names, _by_class(run), strict=True)
        ]
    )
    means = frame.groupby(["kept", "class"], sort=False)["accuracy"].mean().unstack("class")
    total = runs[0].result["total"]
    least = _share_removed(means.index[0], total)
    against = None if len(means) == 1 else "the dense network" if dense else f"{least} sparsity"
    change = means if against is None else (means - means.iloc[0]).iloc[1:]
    wide = change.T.sort_values(change.index[-1])
    table = wide.reset_index()
    table.columns = ["class", *(f"{kept:,} kept" for kept in wide.columns)]
    figure = _draw_class_changes(wide, total, f"{stored.task_title(runs[0])}, {runs[0].variant}", against)
    return AnalysisResult(file, figure, frame, {f"{file}-changes": table})


def _share_removed(kept: Any, total: int) -> str:
    return f"{100 * (1 - int(kept) / total):.4g} %"


def _by_class(run: FinishedRun) -> np.ndarray[Any, Any]:
    right, total = run.record["class_correct"][-1], run.record["class_total"]
    shares: np.ndarray[Any, Any] = 100 * right / np.maximum(total, 1)
    return shares


def _draw_class_changes(wide: pd.DataFrame, total: int, what: str, against: str | None) -> Figure:
    half = MOST_CLASSES // 2
    shown = wide if len(wide) <= MOST_CLASSES else pd.concat([wide.iloc[:half], wide.iloc[-half:]])
    words = f"{'Accuracy change by class' if against else 'Accuracy by class'}: {what}"
    figure, ((axes,),) = plot.panels(width=plot.title_width(words), height=0.9 + 0.19 * len(shown))
    plot.title(figure, words)
    for kept, style in zip(shown.columns, plot.line_styles(len(shown.columns)), strict=True):
        name = _share_removed(kept, total)
        axes.plot(shown[kept], range(len(shown)), markersize=4.5, label=name, **style | {"linestyle": ""})
    if against:
        axes.axvline(0, color=plot.GREY, linewidth=0.8)
    axes.set_yticks(range(len(shown)), map(plot.class_label, shown.index), fontsize=7)
    label = f"change from {against} (points)" if against else "accuracy (%)"
    if len(shown) < len(wide):
        axes.axhline(half - 0.5, color=plot.GREY, linewidth=0.8, linestyle=":")
        kinds = f"{half} least and {half} most affected" if against else f"{half} best and {half} worst"
        label += f"\n{kinds} of {len(wide)} classes at {_share_removed(wide.columns[-1], total)}"
    axes.set_xlabel(label, fontsize=8)
    plot.legend_right(axes, title="sparsity", title_fontsize=7)
    return figure


def _draw_cost(axes: Axes, frame: pd.DataFrame, cost: str) -> None:
    groups = list(dict.fromkeys(frame["group"]))
    for group, style in zip(groups, plot.line_styles(len(groups)), strict=True):
        own = frame[(frame["group"] == group) & frame[cost].notna()]
        means = own.groupby("sparsity", dropna=False)[[cost, "last"]].mean().sort_values(cost)
        line = {} if len(means) > 1 and cost != "training_flops" else {"linestyle": ""}
        axes.plot(means[cost], means["last"], linewidth=1.2, markersize=4, label=group, **style | line)
    axes.set_xscale("log")
    unknown = int(frame[cost].isna().sum())
    axes.set_xlabel(COSTS[cost] + (f"\nmissing: {unknown} of {len(frame)} runs" if unknown else ""), fontsize=8)
    wide = frame[cost].max() > WIDE * frame[cost].min()
    near = frame[cost].max() < NEAR * frame[cost].min()
    # Of few values on a log scale Matplotlib would write one after the other; four have room.
    axes.xaxis.set_major_locator(MaxNLocator(4) if near else LogLocator(subs=(1,) if wide else (1, 2, 5)))
    axes.xaxis.set_major_formatter(
        EngFormatter(sep="") if cost != "kept" else FuncFormatter(lambda value, _: f"{value:g}")
    )
    axes.xaxis.set_minor_locator(NullLocator())

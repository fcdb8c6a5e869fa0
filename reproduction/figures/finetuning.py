"""Test accuracy during fine-tuning, and the gain at each of its learning rates."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

import pandas as pd

from hypersparse.analysis import plotting as plot
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError, group_by, group_by_name, task_title
from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.storage.schemas import Entry, number_of

PHASE = "fine-tune"
NUMBERS = ("train_accuracy", "test_accuracy")
EDGE = 10  # epochs at the beginning and at the end of a rate over which accuracies are averaged
SMOOTH = 5  # epochs of a running mean: at a high rate the test accuracy jumps by points
FALLS = "from "  # begins the name of a rate that falls in nearly every epoch


def analyze(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """Test accuracy during fine-tuning and the gain of each rate; a figure for each model and data set."""
    usable = [run for run in runs if _entries(run)]
    if not usable:
        raise NoRunsError("None of these runs has a fine-tuning phase with learning rates and accuracies in its log.")
    return [
        _analyze_group(plot.file_name("finetuning", *place), own)
        for place, own in group_by(usable, "data", "model").items()
    ]


def _analyze_group(file: str, runs: Sequence[FinishedRun]) -> AnalysisResult:
    rows: list[dict[str, Any]] = []
    gains: list[dict[str, Any]] = []
    groups = group_by_name(runs)
    figure, ((axes,),) = plot.panels(width=plot.legend_width(groups))
    for (name, members), style in zip(groups.items(), plot.line_styles(len(groups)), strict=True):
        gains += _gains(name, members)
        for number, run in enumerate(members):
            entries = _entries(run)
            rows += [
                {**run.settings, "seed": run.seed, "epoch": epoch, "rate": entry["lr"]}
                | {which: number_of(entry, which) for which in NUMBERS}
                for epoch, entry in enumerate(entries)
            ]
            label = name if number == 0 else None
            smooth = _running_mean([100 * entry["test_accuracy"] for entry in entries])
            axes.plot(smooth, linewidth=1.2, label=label, markevery=20, markersize=3.5, **style)
    axes.set_xlabel(f"epoch of fine-tuning (running mean of {SMOOTH})", fontsize=8)
    axes.set_ylabel("test accuracy (%)", fontsize=8)
    plot.legend_right(axes)
    plot.title(figure, f"Test accuracy during fine-tuning: {task_title(runs[0])}")
    return AnalysisResult(file, figure, pd.DataFrame(rows), {f"{file}-gains": pd.DataFrame(gains)})


def _entries(run: FinishedRun) -> list[Entry]:
    """The log entries of fine-tuning."""
    return [entry for entry in run.log if entry["phase"] == PHASE]


def _gains(name: str, members: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """A row for each rate, means over seeds: accuracy in its first and last epochs, in per cent."""
    of_seeds = [_by_rate(_entries(run)) for run in members]
    rows = []
    same = len({tuple(map(_rate, stages)) for stages in of_seeds}) == 1
    for stages in zip(*of_seeds, strict=True) if same else ():
        row: dict[str, Any] = {"name": name, "seeds": len(stages), "rate": _rate(stages[0]), "epochs": len(stages[0])}
        for which in NUMBERS:
            word = which.removesuffix("_accuracy")
            first, last = (
                fmean(100 * fmean(number_of(entry, which) or 0.0 for entry in _edge(stage, end)) for stage in stages)
                for end in (False, True)
            )
            row |= {f"{word}_first": first, f"{word}_last": last, f"{word}_gain": last - first}
        rows.append(row)
    return rows


def _by_rate(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Epochs grouped by rate; a schedule that falls in every epoch is one group."""
    stages = [list(own) for _, own in groupby(entries, lambda entry: f"{entry['lr']:g}")]
    return stages if 2 * len(stages) <= len(entries) else [list(entries)]


def _rate(stage: Sequence[Entry]) -> str:
    first, last = f"{stage[0]['lr']:g}", f"{stage[-1]['lr']:g}"
    return first if first == last else f"{FALLS}{first} on"


def _edge(stage: Sequence[Entry], end: bool) -> Sequence[Entry]:
    count = max(1, min(EDGE, len(stage) // 2))
    return stage[-count:] if end else stage[:count]


def _running_mean(values: Sequence[float]) -> list[float]:
    return [fmean(values[max(0, place - SMOOTH + 1) : place + 1]) for place in range(len(values))]

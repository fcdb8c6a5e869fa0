"""Intersection of each epoch's largest weights with the final mask (figure 2 of the paper)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hypersparse.analysis import finished_runs as stored
from hypersparse.analysis import plotting as plot
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError
from hypersparse.analysis.paper import cell_columns, runs_of, table
from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.plurals import how_many
from hypersparse.runs.store import RunStore

NAME = "intersection"
KEYPOINTS = ("final_epoch", "after_pretraining", "one_before")
TOP = 1.02  # of the axis of shares
MOST_INSIDE = 3  # lines whose names fit between them
PAPER_COLUMNS = ("epochs_to_final_mask", "intersection_after_pretraining", "intersection_one_epoch_before")


def analyze(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """Intersection over the epochs, with the paper's two keypoints.

    A figure for each model on each data set.
    """
    usable = [
        run for run in stored.with_records(runs) if not np.isnan(run.record["intersection"]).all()
    ]  # nor if empty
    if not usable:
        raise NoRunsError("None of these runs has a final mask and epochs before it; the intersection needs both.")
    return [
        _analyze_group(plot.file_name(NAME, *place), own)
        for place, own in stored.group_by(usable, "data", "model").items()
    ]


def _analyze_group(file: str, runs: Sequence[FinishedRun]) -> AnalysisResult:
    groups = stored.group_by_name(runs)
    rows = [
        {**run.settings, "seed": run.seed, "name": name, "epoch": epoch, "phase": phase, "intersection": value}
        for name, members in groups.items()
        for run in members
        for epoch, (phase, value) in enumerate(zip(run.record["phase"], run.record["intersection"], strict=True))
        if not np.isnan(value)
    ]
    points = pd.DataFrame([keypoints(run) for members in groups.values() for run in members])
    return AnalysisResult(
        file, _draw(groups, stored.task_title(runs[0])), pd.DataFrame(rows), {f"{file}-keypoints": points}
    )


def keypoints(run: FinishedRun) -> dict[str, Any]:
    """Epochs up to the final mask, and the intersection after pre-training and one epoch before it.

    They count over the whole run, as in the paper: 64 where its table 2 has 4 regularized ones after 60 others.
    """
    values, phases = run.record["intersection"], run.record["phase"]
    (found,) = np.nonzero(values == 1.0)
    final = int(found[0]) + 1 if len(found) else None
    (dense,) = np.nonzero(phases == "pre-train")
    known = known_keypoints(run.settings) if run.matches_preset else {}
    return {
        **run.settings,
        "seed": run.seed,
        "final_epoch": final,
        "paper_final_epoch": known.get("epochs_to_final_mask"),
        "after_pretraining": float(values[dense[-1]]) if len(dense) else None,
        "paper_after_pretraining": known.get("intersection_after_pretraining"),
        "one_before": float(values[final - 2]) if final and final > 1 else None,
        "paper_one_before": known.get("intersection_one_epoch_before"),
    }


def beside_paper(store: RunStore) -> pd.DataFrame:
    """The paper's keypoints and ours, means over seeds. It gives no deviations, so there is no verdict."""
    rows = []
    for cell in table("mask_intersection").itertuples():
        folders = [run for run in runs_of(cell, store) if run.record_file.is_file()]
        points = pd.DataFrame([keypoints(run) for run in stored.load(run.path for run in folders)] if folders else [])
        row = {**cell_columns(cell), "seeds": len(points)}
        for name, theirs in zip(KEYPOINTS, PAPER_COLUMNS, strict=True):
            row[f"paper_{name}"] = getattr(cell, theirs)
            row[name] = float(points[name].mean()) if len(points) else None
        rows.append(row)
    return pd.DataFrame(rows)


def known_keypoints(words: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's row for these data, model, penalty and sparsity; empty if it has none."""
    known = table("mask_intersection")
    same = known[
        (known["dataset"] == words["data"])
        & (known["model"] == words["model"])
        & (known["penalty"] == words["penalty"])
        & (known["sparsity"] == words["sparsity"])
    ]
    return {str(name): value for name, value in same.iloc[0].items()} if len(same) else {}


def _draw(groups: dict[str, list[FinishedRun]], what: str) -> Any:
    beside = len(groups) > MOST_INSIDE or any(len(name) > plot.LONGEST_NAME for name in groups)
    figure, ((axes,),) = plot.panels(width=plot.PAGE if beside else plot.COLUMN)
    for (name, members), style in zip(groups.items(), plot.line_styles(len(groups)), strict=True):
        for number, run in enumerate(members):
            values, points = run.record["intersection"], keypoints(run)
            label = name if number == 0 else None
            axes.plot(1 + np.arange(len(values)), values, linewidth=1.2, label=label, **style | {"marker": ""})
            marked = [epochs for epochs in (_dense_epochs(run), (points["final_epoch"] or 0) - 1) if epochs > 0]
            axes.plot(marked, values[np.array(marked, dtype=int) - 1], markersize=4, **style | {"linestyle": ""})
    _mark_pretraining(axes, [run for members in groups.values() for run in members])
    axes.set_ylim(0, TOP)
    axes.set_xlabel("epochs trained")
    axes.set_ylabel("share of the final mask")
    if beside:
        plot.legend_right(axes)
    else:
        plot.legend(axes, loc="lower right")
    plot.title(figure, f"Intersection with the final mask: {what}")
    return figure


def _mark_pretraining(axes: Any, runs: Sequence[FinishedRun]) -> None:
    """A line at the end of pre-training; if runs differ, it reaches up to the runs that end there."""
    lengths = {_dense_epochs(run) for run in runs}
    look = {"ha": "right", "fontsize": 6.5, "color": plot.GREY}
    for epoch in lengths - {0}:
        top = TOP
        if len(lengths) == 1:
            axes.text(epoch, 1.0, "end of pre-training ", va="top", **look)
        else:
            own = [run.record["intersection"][epoch - 1] for run in runs if _dense_epochs(run) == epoch]
            top = float(np.nanmax([0.0, *own]))
            axes.text(epoch, 0.01, f"end of {how_many(epoch, 'epoch')} \nof pre-training ", va="bottom", **look)
        axes.vlines(epoch, 0, top, color=plot.GREY, linewidth=0.8, linestyle=":")


def _dense_epochs(run: FinishedRun) -> int:
    return int((run.record["phase"] == "pre-train").sum())

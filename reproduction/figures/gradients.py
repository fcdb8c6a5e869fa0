"""Magnitudes and penalty gradients over the sorted weights (figure 1 of the paper)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError, task_title, with_records
from hypersparse.analysis.plotting import BLUE, GREY, ORANGE, PAGE, AnalysisResult, file_name, legend, panels, title
from hypersparse.errors import OptionError, RunError

MOST_PANELS = 4
BEYOND = 0.05  # of the kept weights are larger than the panel shows, so that the others can be told apart
SHOWN = 3.5  # times the kept share: what is drawn, from the right; 0.65 to 1 at 90 % sparsity as in the paper


def analyze_run(run: FinishedRun, epochs: Sequence[int] | None = None) -> AnalysisResult:
    """One run, at these regularized epochs or at a few of the recorded ones."""
    record = run.record
    if not len(record["curve_epochs"]):
        raise RunError(
            f"{run.folder.path} has no curves in its record: its method has no penalty, or an earlier version trained "
            "it."
        )
    there = record["curve_epochs"] - int(np.nonzero(record["phase"] == "regularize")[0][0])
    chosen = _choose(there.tolist(), epochs)
    frame = pd.DataFrame(
        [
            {"epoch": epoch, "place": place, "magnitude": magnitude, "gradient": gradient}
            for epoch in chosen
            for place, magnitude, gradient in zip(
                record["curve_place"],
                record["curve_magnitude"][there.tolist().index(epoch)],
                record["curve_gradient"][there.tolist().index(epoch)],
                strict=True,
            )
        ]
    )
    words, sparsity = run.settings, float(record["sparsity"])
    name = f"gradients-{run.recipe.label}-seed-{run.seed}"
    return AnalysisResult(name, _draw(frame, sparsity, str(words["penalty"]), task_title(run)), frame)


def with_curves(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Those with curves in their record; there must be one."""
    having = [run for run in with_records(runs) if len(run.record["curve_epochs"])]
    if not having:
        raise NoRunsError("None of these runs has curves in its record; only methods with a penalty record them.")
    return having


def analyze(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """The least sparse run with HyperSparse of each model and data set, where the curves are easiest to see.

    A run whose regularized phase was so short that it has a single curve comes after those with several.
    """
    having = [run for run in with_curves(runs) if run.settings["penalty"] == "hypersparse"]
    found: dict[tuple[str, str], FinishedRun] = {}
    for run in sorted(having, key=_rank):
        found.setdefault((run.settings["data"], run.settings["model"]), run)
    return [replace(analyze_run(run), name=file_name("gradients", *place)) for place, run in found.items()]


def _rank(run: FinishedRun) -> tuple[Any, ...]:
    return len(run.record["curve_epochs"]) < 2, run.settings["sparsity"], not run.matches_preset, run.variant, run.seed


def _choose(there: Sequence[int], wanted: Sequence[int] | None) -> list[int]:
    if wanted is not None:
        if missing := sorted(set(wanted) - set(there)):
            known = ", ".join(map(str, there))
            raise OptionError(f"Regularized epoch {missing[0]} was not recorded; choose from {known} (counted from 0).")
        return list(wanted)
    places = np.linspace(0, len(there) - 1, min(MOST_PANELS, len(there))).round().astype(int)
    return [there[place] for place in places]


def _draw(frame: pd.DataFrame, sparsity: float, penalty: str, what: str) -> Figure:
    epochs = list(dict.fromkeys(frame["epoch"]))
    options: dict[str, Any] = {"sharex": True, "sharey": "row"}
    figure, axes = panels(2, len(epochs), width=max(PAGE * len(epochs) / MOST_PANELS, 3.5), height=3.4, **options)
    left = max(0.0, 1 - SHOWN * (1 - sparsity))
    for column, epoch in enumerate(epochs):
        own = frame[(frame["epoch"] == epoch) & (frame["place"] >= left)]
        above, below = axes[:, column]
        above.plot(own["place"], own["magnitude"], color=BLUE, linewidth=1.4)
        below.plot(own["place"], own["gradient"], color=ORANGE, linewidth=1.4, label=penalty)
        if penalty != "l1":
            below.axhline(1.0, color=GREY, linewidth=0.9, linestyle="--", label="l1")
        for each in (above, below):
            each.axvline(sparsity, color=GREY, linewidth=0.9, linestyle=":")
        above.set_title(f"epoch {epoch}", fontsize=8)
        above.set_xlim(left, 1.0)
        below.set_xlabel("rank of the weight", fontsize=8)
    most = frame["magnitude"][frame["place"] <= 1 - BEYOND * (1 - sparsity)].max()
    for row, limit in zip(axes, (most, max(1.0, frame["gradient"].max())), strict=True):
        row[0].set_ylim(0, 1.05 * limit)  # shared by the row
    axes[0, 0].set_ylabel("magnitude", fontsize=8)
    axes[1, 0].set_ylabel("|gradient|", fontsize=8)
    legend(axes[1, -1])
    title(figure, f"Sorted weights and penalty gradients: {what}, {100 * sparsity:g} %")
    return figure

"""Mask changes in each epoch, and the agreement of final masks between seeds."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from hypersparse.analysis import finished_runs as stored
from hypersparse.analysis import plotting as plot
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError
from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.errors import RunError


def crossings(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """The share of the largest weights that is new in each epoch.

    A figure for each model on each data set.
    """
    usable = [run for run in stored.with_records(runs) if (run.record["crossed"] >= 0).any()]
    if not usable:
        raise NoRunsError("None of these runs records mask changes.")
    return [
        _crossing(plot.file_name("crossing", *place), own)
        for place, own in stored.group_by(usable, "data", "model").items()
    ]


def _crossing(file: str, usable: Sequence[FinishedRun]) -> AnalysisResult:
    rows, groups = [], stored.group_by_name(usable)
    figure, ((axes,),) = plot.panels(width=plot.legend_width(groups))
    for (name, members), style in zip(groups.items(), plot.line_styles(len(groups)), strict=True):
        for number, run in enumerate(members):
            crossed, keep = run.record["crossed"], int(run.record["keep"])
            (epochs,) = np.nonzero(crossed >= 0)
            shares = crossed[epochs] / keep
            label = name if number == 0 else None
            axes.plot(epochs, 100 * shares, linewidth=1.2, label=label, markevery=10, markersize=3.5, **style)
            rows += [
                {**run.settings, "seed": run.seed, "epoch": epoch, "phase": run.record["phase"][epoch], "share": share}
                for epoch, share in zip(epochs.tolist(), shares.tolist(), strict=True)
            ]
    for boundary in {int((run.record["phase"] == "pre-train").sum()) for run in usable} - {0}:
        axes.axvline(boundary - 0.5, color=plot.GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epoch (dotted: end of pre-training)", fontsize=8)
    axes.set_ylabel("new weights in the mask (%)", fontsize=8)
    plot.legend_right(axes)
    plot.title(figure, f"Mask changes per epoch: {stored.task_title(usable[0])}")
    return AnalysisResult(file, figure, pd.DataFrame(rows))


def agreement(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """Overlap of the final masks of two seeds, and the overlap expected by chance."""
    usable = [run for run in stored.with_records(runs) if len(run.record.get("final_sample", ()))]
    # Named among all runs, since the title says neither network nor sparsity.
    groups = (
        {name: members for name, members in stored.group_by_name(usable).items() if len(members) > 1} if usable else {}
    )
    if not groups:
        raise NoRunsError(
            "Mask agreement needs two seeds of one recipe with final masks in their records; there are none."
        )
    rows = [
        {"name": name, **one.settings, "seeds": f"{one.seed}, {other.seed}", **_agreement(one, other)}
        for name, members in groups.items()
        for one, other in combinations(members, 2)
    ]
    frame = pd.DataFrame(rows)
    names = list(map(plot.wrap_label, groups))
    inches = max(0.35, *(0.1 + 0.13 * len(name.splitlines()) for name in names))  # of a row
    figure, ((axes,),) = plot.panels(width=plot.legend_width(groups), height=0.9 + inches * len(names))
    for place, (name, style) in enumerate(zip(groups, plot.line_styles(len(groups)), strict=True)):
        own = frame[frame["name"] == name]
        axes.plot(100 * own["agreement"], [place] * len(own), markersize=5, alpha=0.8, **style | {"linestyle": ""})
        axes.plot(100 * own["chance"].mean(), place, marker="|", color=plot.GREY, markersize=12)
    axes.set_yticks(range(len(groups)), names, fontsize=7)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(0, 115 * max(frame["agreement"].max(), frame["chance"].max()))
    axes.set_xlabel("shared weights (%); bar: expected by chance", fontsize=8)
    plot.title(figure, "Mask agreement between seeds")
    return [AnalysisResult("agreement", figure, frame, {})]


def _agreement(one: FinishedRun, other: FinishedRun) -> dict[str, Any]:
    """The share of the sampled kept weights that the other run keeps too, averaged over both directions."""
    a, b = (np.unpackbits(run.record["final_sample"]).astype(bool) for run in (one, other))
    if a.shape != b.shape:
        raise RunError(
            f"{one.recipe.label} and {other.recipe.label} have different layers; mask agreement needs one network."
        )
    common = int((a & b).sum())
    shares = [common / max(int(mask.sum()), 1) for mask in (a, b)]
    totals = one.result["total_by_layer"]
    mine, theirs = one.result["kept_by_layer"], other.result["kept_by_layer"]
    by_chance = sum(mine[layer] * theirs[layer] / total for layer, total in totals.items())
    kept = (sum(mine.values()) + sum(theirs.values())) / 2
    return {"agreement": float(np.mean(shares)), "chance": by_chance / kept, "sampled": int(a.sum())}

"""Regularized epochs to the final mask, per penalty, beside the paper's (its table 2)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from hypersparse.analysis.paper import epochs_to_mask, table
from hypersparse.analysis.stored import Stored
from hypersparse.analysis.style import GREY, PAGE, Study, legend_beside, line_styles, panels, title
from hypersparse.errors import RunError

KEYS = ["data", "model", "penalty", "sparsity"]
SETTING = ["data", "model", "sparsity"]
APART = 0.25  # between penalties, in rows


def study(runs: Sequence[Stored]) -> Study:
    """Mean and deviation over seeds, with the paper's where it has the setting."""
    rows = [
        {**run.words, "penalty": _penalty(run), "seed": run.seed, "epochs": epochs_to_mask(run.folder)} for run in runs
    ]
    frame = pd.DataFrame([row for row in rows if row["epochs"] is not None])
    if frame.empty:
        raise RunError("None of these runs was regularized, so none has epochs to a final mask.")
    summary = frame.groupby(KEYS, sort=False)["epochs"].agg(["mean", "std", "count"]).reset_index()
    summary.columns = [*KEYS, "epochs", "deviation", "seeds"]
    known = table("regularized_epochs").rename(
        columns={"dataset": "data", "epochs_mean": "paper", "epochs_std": "paper_deviation"}
    )
    summary = summary.merge(known[[*KEYS, "paper", "paper_deviation"]], on=KEYS, how="left")
    return Study("epochs", _draw(summary), frame, {"epochs-summary": summary})


def _penalty(run: Stored) -> str:
    """With whatever else is not as in the preset, of which the paper has no number."""
    return " ".join(str(run.words[word]) for word in ("penalty", "variant") if run.words[word] is not None)


def _draw(summary: pd.DataFrame) -> Figure:
    summary = summary.sort_values(["data", "model", "sparsity", "penalty"]).reset_index(drop=True)
    rows = summary.groupby(SETTING, sort=False).ngroup()  # penalties of a setting share its row
    penalties = list(dict.fromkeys(summary["penalty"]))
    figure, ((axes,),) = panels(width=PAGE, height=0.9 + (0.12 + 0.16 * len(penalties)) * (rows.max() + 1))
    for number, (penalty, style) in enumerate(zip(penalties, line_styles(len(penalties)), strict=True)):
        own = summary[summary["penalty"] == penalty]
        places = rows[own.index] + (number - (len(penalties) - 1) / 2) * APART
        look = {"linestyle": "", "markersize": 5, "color": style["color"], "marker": style["marker"]}
        axes.errorbar(own["epochs"], places, xerr=own["deviation"].fillna(0.0), label=penalty, **look)
        paper = own.dropna(subset=["paper"])
        axes.errorbar(paper["paper"], places[paper.index], xerr=paper["paper_deviation"], mfc="white", **look)
    if summary["paper"].notna().any():
        axes.plot([], [], linestyle="", marker="o", mfc="white", color=GREY, label="the paper's")
    settings = summary[SETTING].drop_duplicates().to_numpy()
    names = [f"{data} {model} {100 * sparsity:g} %" for data, model, sparsity in settings]
    axes.set_yticks(np.arange(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("regularized epochs to the final mask")
    legend_beside(axes)
    title(figure, "How long the penalty grows")
    return figure

"""Regularized epochs to the final mask, per variant, beside the paper's (its table 2)."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from hypersparse.analysis import plotting as plot
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError, short_names
from hypersparse.analysis.paper import epochs_to_mask, table, variant_of
from hypersparse.analysis.plotting import AnalysisResult

KEYS = ["data", "model", "variant", "sparsity"]
SETTING = ["data", "model", "sparsity"]
APART, BETWEEN = 1.0, 0.8  # variants of a row, and rows
INCHES = 0.17  # of a variant


def analyze(runs: Sequence[FinishedRun]) -> AnalysisResult:
    """Mean and deviation over seeds, with the paper's number for the same setting."""
    rows = [{**run.settings, "seed": run.seed, "epochs": epochs_to_mask(run.folder)} for run in runs]
    frame = pd.DataFrame([row for row in rows if row["epochs"] is not None])
    if frame.empty:
        raise NoRunsError("None of these runs has a regularized phase.")
    summary = frame.groupby(KEYS, sort=False)["epochs"].agg(["mean", "std", "count"]).reset_index()
    summary.columns = [*KEYS, "epochs", "deviation", "seeds"]
    known = table("regularized_epochs").rename(
        columns={"dataset": "data", "epochs_mean": "paper", "epochs_std": "paper_deviation"}
    )
    known["variant"] = [variant_of(cell) for cell in table("regularized_epochs").itertuples()]
    summary = summary.merge(known[[*KEYS, "paper", "paper_deviation"]], on=KEYS, how="left")
    short = dict(zip((run.variant for run in runs), short_names(runs), strict=True))
    return AnalysisResult("epochs", _draw(summary, short), frame, {"epochs-summary": summary})


def _draw(summary: pd.DataFrame, short: Mapping[str, str]) -> Figure:
    summary = summary.sort_values(["data", "model", "sparsity", "variant"]).reset_index(drop=True)
    rows = summary.groupby(SETTING, sort=False).ngroup()  # variants of a setting share its row
    variants = list(dict.fromkeys(summary["variant"]))
    counts = summary.groupby(rows).size()
    heights = counts * APART + BETWEEN
    middles = heights.cumsum() - heights / 2
    figure, ((axes,),) = plot.panels(width=plot.PAGE, height=0.9 + INCHES * heights.sum())
    place_in_row = summary.groupby(rows).cumcount() - (rows.map(counts) - 1) / 2  # what a row has is centred on it
    places = rows.map(middles) + place_in_row * APART
    for variant, style in zip(variants, plot.line_styles(len(variants)), strict=True):
        own = summary[summary["variant"] == variant]
        look = {"linestyle": "", "markersize": 5, "color": style["color"], "marker": style["marker"]}
        line = {"xerr": own["deviation"].fillna(0.0), "label": short[variant]}
        axes.errorbar(own["epochs"], places[own.index], **line, **look)
        paper = own.dropna(subset=["paper"])
        axes.errorbar(paper["paper"], places[paper.index], xerr=paper["paper_deviation"], mfc="white", **look)
    if summary["paper"].notna().any():
        axes.plot([], [], linestyle="", marker="o", mfc="white", color=plot.GREY, label="paper")
    settings = summary[SETTING].drop_duplicates().to_numpy()
    names = [f"{data} {model} {100 * sparsity:g} %" for data, model, sparsity in settings]
    axes.set_yticks(middles.to_list(), names)
    axes.set_ylim(heights.sum(), 0)
    axes.set_xlim(left=0)
    axes.set_xlabel("regularized epochs to the final mask")
    plot.legend_right(axes)
    plot.title(figure, "Regularized epochs to the final mask")
    return figure

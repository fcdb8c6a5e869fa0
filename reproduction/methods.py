"""All methods over the sparsity, ours beside the paper's, and ART against the best other method in each cell."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from hypersparse.analysis import paper, plotting
from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.runs.store import RunStore

ART, DENSE = "art hypersparse", "dense"
CELL = ["data", "model", "sparsity"]
COLUMNS = (
    *CELL, "paper_art", "paper_art_deviation", "paper_other", "paper_other_deviation", "paper_other_method",
    "paper_difference", "seeds", "art", "art_deviation", "other", "other_deviation", "other_method", "difference",
)  # fmt: skip


def against_best_other(store: RunStore) -> pd.DataFrame:
    """ART with HyperSparse minus the best other method, by the best epoch; variants of ART are not other methods.

    `seeds` counts those of ART and is 0 unless there is another method of ours in the cell.
    """
    cells = paper.accuracy(store)
    rows = []
    for place, here in cells[cells["sparsity"] > 0].groupby(CELL, sort=False):
        (art,) = here[here["method"] == ART].to_dict("records")
        others = here[~here["method"].str.startswith("art ")]
        trained = others[others["seeds"] > 0]
        rows.append({**dict(zip(CELL, place, strict=True)), **_of_paper(art, others), **_of_ours(art, trained)})
    return pd.DataFrame(rows, columns=list(COLUMNS)).round({"paper_difference": 2, "difference": 2})


def _of_paper(art: Mapping[Any, Any], others: pd.DataFrame) -> dict[str, Any]:
    best = others.sort_values("paper").iloc[-1]
    return {
        "paper_art": art["paper"],
        "paper_art_deviation": art["paper_deviation"],
        "paper_other": best["paper"],
        "paper_other_deviation": best["paper_deviation"],
        "paper_other_method": best["method"],
        "paper_difference": art["paper"] - best["paper"],
    }


def _of_ours(art: Mapping[Any, Any], trained: pd.DataFrame) -> dict[str, Any]:
    if trained.empty or not art["seeds"]:
        return {"seeds": 0}
    best = trained.sort_values("best").iloc[-1]
    return {
        "seeds": art["seeds"],
        "art": art["best"],
        "art_deviation": art["best_deviation"],
        "other": best["best"],
        "other_deviation": best["best_deviation"],
        "other_method": f"{best['method']} (of {len(trained)})",
        "difference": art["best"] - best["best"],
    }


def over_sparsity(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """A figure for each data set with runs: the paper's methods as lines, ours as filled markers, by the best epoch."""
    scores: dict[str, list[float]] = {}
    for run in runs:
        if run.scores and run.result["until"] is None:
            scores.setdefault(run.recipe.label, []).append(100 * run.scores["best"])
    cells = paper.table("accuracy")
    cells = cells.assign(
        label=[paper.recipe_of(cell).label for cell in cells.itertuples()],
        name=[paper.variant_of(cell) for cell in cells.itertuples()],
    )
    cells["ours"] = [pd.Series(scores.get(label, []), dtype=float).mean() for label in cells["label"]]
    trained = cells.groupby("dataset", sort=False)["ours"].transform(lambda ours: ours.notna().any())
    return [_figure(str(data), own) for data, own in cells[trained].groupby("dataset", sort=False)]


def _figure(data: str, cells: pd.DataFrame) -> AnalysisResult:
    models = list(dict.fromkeys(cells["model"]))
    names = [ART, *(name for name in dict.fromkeys(cells["name"]) if name not in (ART, DENSE))]
    styles = dict(zip(names, plotting.line_styles(len(names)), strict=True))
    figure, axes = plotting.panels(1, len(models), width=plotting.PAGE, height=3.4)
    for each, model in zip(axes[0], models, strict=True):
        _draw(each, cells[cells["model"] == model], styles)
        each.set_title(model, loc="left", fontsize=plotting.TEXT)
    axes[0][0].set_ylabel("test accuracy, best epoch (%)", fontsize=plotting.TEXT)
    axes[0][-1].plot([], [], linestyle="", marker="o", color=plotting.GREY, label="filled: ours")
    plotting.legend_right(axes[0][-1])
    plotting.title(figure, f"All methods on {data}: lines are the paper's, filled markers are ours")
    columns = ["dataset", "model", "name", "sparsity", "accuracy_mean", "ours"]
    return AnalysisResult(plotting.file_name("methods", data), figure, cells[columns])


def _draw(axes: Axes, cells: pd.DataFrame, styles: Mapping[str, dict[str, Any]]) -> None:
    for name, look in styles.items():
        own = cells[cells["name"] == name]
        density = 1 - own["sparsity"]
        axes.plot(density, own["accuracy_mean"], **look, mfc="white", markersize=3.5, linewidth=0.9, label=name)
        axes.plot(density, own["ours"], **look | {"linestyle": ""}, markersize=6.5)
    dense = float(cells.loc[cells["name"] == DENSE, "accuracy_mean"].iloc[0])
    axes.axhline(dense, color=plotting.FAINT, linewidth=1.2, label=DENSE)
    plotting.sparsity_axis(axes, cells.loc[cells["sparsity"] > 0, "sparsity"])

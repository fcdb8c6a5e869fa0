"""Comparison of methods: mean and deviation over seeds, as a table, files and a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hypersparse.analysis.paired import markdown as paired_markdown
from hypersparse.analysis.paired import paired
from hypersparse.analysis.plotting import COLORS, MARKERS, save_figure
from hypersparse.analysis.statistics import summarize as summary_of
from hypersparse.storage.files import make_folder, write_text

ACCURACIES = ("last", "best")
DIGITS = 9  # of a mean in per cent in which methods that are equally good agree


def collect(results: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pd.DataFrame:
    """A row for each run, named after its variant.

    Accuracies are in per cent, of the sparse network, or of the dense one where there is no other.
    """
    rows = []
    for result, name in zip(results, names, strict=True):
        part = result["sparse"] or result["dense"]
        sparsity = result["recipe"]["method"].get("sparsity")
        rows.append(
            {
                "method": name,
                "sparsity": float("nan") if sparsity is None else float(sparsity),
                "seed": result["seed"],
                "last": 100 * part["last"],
                "best": 100 * part["best"],
                "kept": result["kept"],
                "total": result["total"],
                "epochs": sum(result["epochs"].values()),
                "seconds": result["wall_seconds"],
            }
        )
    return pd.DataFrame(rows)


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each method and sparsity: mean, sample deviation and number of seeds."""
    groups = runs.groupby(["method", "sparsity"], sort=False, dropna=False)
    summary = groups.agg(
        last=("last", _mean),
        last_deviation=("last", _deviation),
        best=("best", _mean),
        best_deviation=("best", _deviation),
        seeds=("seed", "count"),
        epochs=("epochs", "mean"),
    ).reset_index()
    # The same accuracies of other seeds have the same mean, which the order of adding them must not tell apart.
    exact = summary.assign(last=summary["last"].round(DIGITS))
    summary["place"] = exact.groupby("sparsity", dropna=True)["last"].rank(ascending=False, method="min")
    return summary


def cell(row: Any) -> str:
    """Mean and deviation, such as 98.15 ± 0.32; the deviation is left out for a single seed."""
    deviation = "" if pd.isna(row.last_deviation) else f" ± {row.last_deviation:.2f}"
    return f"{row.last:.2f}{deviation}"


def grid(summary: pd.DataFrame, *, first: str = "**{}**", second: str = "*{}*") -> tuple[list[str], list[list[str]]]:
    """Header and rows: methods down, sparsities across, the best and the second best of each column marked."""
    sparsities = sorted(summary["sparsity"].dropna().unique())
    columns = [f"{100 * sparsity:g} %" for sparsity in sparsities] or ["dense"]  # of methods without a sparsity alone
    header = ["method", *columns, "epochs"]
    rows = []
    for method in dict.fromkeys(summary["method"]):
        own = summary[summary["method"] == method]
        if own["sparsity"].isna().all():
            rows.append([method, *[cell(row) for row in own.itertuples()] * len(columns), _epochs(own)])
            continue
        cells = {row.sparsity: _marked(row, first, second) for row in own.itertuples()}
        rows.append([method, *(cells.get(sparsity, "") for sparsity in sparsities), _epochs(own)])
    return header, rows


def write(folder: Path, runs: pd.DataFrame, title: str) -> list[Path]:
    """`runs.csv`, `summary.csv`, `table.md`, the picture as PNG and SVG, `paired.csv`, and the times in `timing.csv`.

    All but `timing.csv` are the same every time.
    """
    summary, pairs = summarize(runs), paired(runs)
    make_folder(folder)
    names = ("runs.csv", "summary.csv", "table.md", "accuracy.png", "accuracy.svg", "paired.csv", "timing.csv")
    paths = [folder / name for name in names]
    write_text(paths[0], runs.drop(columns="seconds").to_csv(index=False))
    write_text(paths[1], summary.to_csv(index=False))
    seed_by_seed = "" if pairs.empty else f"\n{paired_markdown(pairs)}"
    write_text(paths[2], markdown(summary, title) + seed_by_seed)
    write_text(paths[5], pairs.to_csv(index=False))
    write_text(paths[6], runs[["method", "sparsity", "seed", "seconds"]].to_csv(index=False))
    figure = draw(summary, title)
    save_figure(figure, paths[3])
    save_figure(figure, paths[4])
    return paths


def markdown(summary: pd.DataFrame, title: str) -> str:
    """The grid as Markdown, with a note on the numbers."""
    header, rows = grid(summary)
    lines = [f"# {title}", "", "| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    fewest, most = summary["seeds"].min(), summary["seeds"].max()
    seeds = f"{most} seed(s)" if fewest == most else f"{fewest} to {most} seeds, as far as they are trained"
    note = f"Test accuracy of the last epoch in per cent, mean ± sample deviation over {seeds}. "
    return "\n".join([*lines, "", note + "**Best** and *second best* of each sparsity."]) + "\n"


def draw(summary: pd.DataFrame, title: str) -> Figure:
    """Accuracy over sparsity, a line for each method with a band of one deviation."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, method in enumerate(dict.fromkeys(summary["method"])):
        own = summary[summary["method"] == method].sort_values("sparsity")
        color = COLORS[number % len(COLORS)]
        if own["sparsity"].isna().all():
            axes.axhline(own["last"].iloc[0], color="#555555", linestyle=":", label=method)
            continue
        density, deviation = 1 - own["sparsity"], own["last_deviation"].fillna(0.0)
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(density, own["last"], label=method, linewidth=1.5, color=color, marker=marker, markersize=5.0)
        if len(own) == 1:  # a band of one place has no width
            axes.errorbar(density, own["last"], yerr=deviation, color=color, capsize=3, linewidth=1.0)
        axes.fill_between(density, own["last"] - deviation, own["last"] + deviation, color=color, alpha=0.15, lw=0)
    _label(figure, summary, title)
    return figure


def _label(figure: Figure, summary: pd.DataFrame, title: str) -> None:
    axes = figure.axes[0]
    densities = sorted({round(1 - sparsity, 6) for sparsity in summary["sparsity"].dropna()}, reverse=True)
    if densities:
        if len(densities) == 1:  # a single place has no width, of which Matplotlib warns
            axes.set_xlim(densities[0] / 2, densities[0] * 2)
        axes.set_xscale("log")
        axes.invert_xaxis()
        axes.xaxis.set_major_locator(FixedLocator(densities))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda density, _: f"{100 * (1 - density):g} %"))
    axes.set_xlabel("sparsity")
    axes.set_ylabel("test accuracy, last epoch (%)")
    axes.grid(color="#E6ECF2")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _mean(values: "pd.Series[float]") -> float:
    return summary_of(values.tolist()).mean


def _deviation(values: "pd.Series[float]") -> float:
    found = summary_of(values.tolist()).deviation
    return float("nan") if found is None else found


def _marked(row: Any, first: str, second: str) -> str:
    return {1.0: first, 2.0: second}.get(row.place, "{}").format(cell(row))


def _epochs(own: pd.DataFrame) -> str:
    low, high = own["epochs"].min(), own["epochs"].max()
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"

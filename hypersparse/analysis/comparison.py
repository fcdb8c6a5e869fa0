"""Comparison of methods: mean and deviation over seeds, as a table, files and a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from hypersparse.analysis import plotting as plot
from hypersparse.analysis.paired import markdown as paired_markdown
from hypersparse.analysis.paired import paired
from hypersparse.analysis.tables import markdown_table
from hypersparse.plurals import how_many
from hypersparse.storage.files import make_folder, write_text

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
        last=("last", "mean"),
        last_deviation=("last", "std"),
        best=("best", "mean"),
        best_deviation=("best", "std"),
        seeds=("seed", "count"),
        epochs=("epochs", "mean"),
    ).reset_index()
    # Equal accuracies in another order of seeds must have equal means.
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
    seed_by_seed = "" if pairs.empty else f"\n{paired_markdown(pairs)}"
    times = runs[["method", "sparsity", "seed", "seconds"]]
    tables = {"runs": runs.drop(columns="seconds"), "summary": summary, "paired": pairs, "timing": times}
    text, figures = folder / "table.md", [folder / f"accuracy.{suffix}" for suffix in ("png", "svg")]
    write_text(text, markdown(summary, title) + seed_by_seed)
    figure = draw(summary, title)
    for path in figures:
        plot.save_figure(figure, path)
    return [*plot.write_tables(folder, tables), text, *figures]


def markdown(summary: pd.DataFrame, title: str) -> str:
    """The grid as Markdown, with a note on the numbers."""
    header, rows = grid(summary)
    lines = [f"# {title}", "", *markdown_table(header, rows)]
    fewest, most = summary["seeds"].min(), summary["seeds"].max()
    seeds = how_many(most, "seed") if fewest == most else f"{fewest} to {most} seeds, as far as they are trained"
    note = f"Test accuracy of the last epoch in per cent, mean ± sample deviation over {seeds}. "
    return "\n".join([*lines, "", note + "**Best** and *second best* of each sparsity."]) + "\n"


def draw(summary: pd.DataFrame, title: str) -> Figure:
    """Accuracy over sparsity, a line for each method with a band of one deviation."""
    figure, ((axes,),) = plot.panels(width=plot.PAGE, height=4.4)
    methods = list(dict.fromkeys(summary["method"]))
    for method, style in zip(methods, plot.line_styles(len(methods)), strict=True):
        own = summary[summary["method"] == method].sort_values("sparsity")
        if own["sparsity"].isna().all():
            axes.axhline(own["last"].iloc[0], color=plot.GREY, linestyle=":", label=method)
            continue
        density, deviation, color = 1 - own["sparsity"], own["last_deviation"].fillna(0.0), style["color"]
        axes.plot(density, own["last"], label=method, linewidth=1.5, markersize=5.0, **style)
        if len(own) == 1:  # a band of one place has no width
            axes.errorbar(density, own["last"], yerr=deviation, color=color, capsize=3, linewidth=1.0)
        axes.fill_between(density, own["last"] - deviation, own["last"] + deviation, color=color, alpha=0.15, lw=0)
    plot.sparsity_axis(axes, summary["sparsity"])
    axes.set_ylabel("test accuracy, last epoch (%)")
    plot.legend_right(axes)
    plot.title(figure, title)
    return figure


def _marked(row: Any, first: str, second: str) -> str:
    return {1.0: first, 2.0: second}.get(row.place, "{}").format(cell(row))


def _epochs(own: pd.DataFrame) -> str:
    low, high = own["epochs"].min(), own["epochs"].max()
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"

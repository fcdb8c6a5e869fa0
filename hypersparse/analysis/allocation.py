"""Weights per layer for several methods, under the blocks of the network (figure 3 of the paper)."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hypersparse.analysis import plotting as plot
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError, group_by, group_by_name, task_title
from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.errors import RunError

MOST_LINES = 8  # of a figure; with more there is a figure for each sparsity


def analyze(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """A figure for each model and data set, or for each sparsity if there are too many lines."""
    sparse = [run for run in runs if run.result["kept"] < run.result["total"]]
    if not sparse:
        raise NoRunsError("None of these runs has a sparse network, so there are no weights per layer to compare.")
    found = []
    for (data, model), members in group_by(sparse, "data", "model").items():
        several = len(group_by_name(members)) > MOST_LINES
        for (sparsity,), own in group_by(members, "sparsity").items() if several else [((None,), members)]:
            share, at = (f"-{sparsity:g}", f" at {100 * sparsity:g} %") if isinstance(sparsity, float) else ("", "")
            found.append(
                _analyze_group(plot.file_name("layers", data, f"{model}{share}"), own, f"{task_title(own[0])}{at}")
            )
    return found


def _analyze_group(file: str, runs: Sequence[FinishedRun], what: str) -> AnalysisResult:
    """Kept weights of each layer, mean over seeds; all runs must have the same layers."""
    totals = runs[0].result["total_by_layer"]
    for run in runs:
        if run.result["total_by_layer"] != totals:
            first = runs[0].recipe.label
            raise RunError(f"{run.recipe.label} has other layers than {first}; pass runs of one model on one data set.")
    groups = group_by_name(runs)
    rows = []
    for name, members in groups.items():
        for number, (layer, total) in enumerate(totals.items(), start=1):
            kept = [run.result["kept_by_layer"][layer] for run in members]
            rows.append(
                {
                    "name": name,
                    "number": number,
                    "layer": layer.removesuffix(".weight"),
                    "total": total,
                    "kept": float(np.mean(kept)),
                    "deviation": float(np.std(kept, ddof=1)) if len(kept) > 1 else None,
                    "density": float(np.mean(kept)) / total,
                    "seeds": len(kept),
                }
            )
    frame = pd.DataFrame(rows)
    return AnalysisResult(file, _draw(frame, what), frame, {f"{file}-blocks": by_block(frame)})


def by_block(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each line of the figure: weights kept in each block, share in per cent in brackets."""
    parts = frame.assign(part=[_part(layer) for layer in frame["layer"]])
    sums = parts.groupby(["name", "part"], sort=False)[["kept", "total"]].sum()
    rows = []
    for name in dict.fromkeys(frame["name"]):
        own, seeds = sums.loc[name], int(frame.loc[frame["name"] == name, "seeds"].max())
        cells = {
            str(part): f"{row['kept']:,.0f} ({100 * row['kept'] / row['total']:.3g})" for part, row in own.iterrows()
        }
        rows.append({"runs": name, "seeds": seeds, **cells})
    return pd.DataFrame(rows)


def _draw(frame: pd.DataFrame, what: str) -> Figure:
    names = list(dict.fromkeys(frame["name"]))
    figure, axes = plot.panels(3, 1, width=plot.PAGE, height=4.4, sharex=True, height_ratios=[0.22, 1, 1])
    (blocks, counts, shares) = axes[:, 0]
    layers = frame[frame["name"] == names[0]]
    _draw_blocks(blocks, list(layers["layer"]), [counts, shares])
    counts.step(layers["number"], layers["total"], where="mid", color=plot.FAINT, linewidth=1.0, label="all")
    for name, style in zip(names, plot.line_styles(len(names)), strict=True):
        own = frame[frame["name"] == name]
        look: dict[str, Any] = {"markersize": 3.5, "linewidth": 1.2, **style}
        counts.plot(own["number"], own["kept"].where(own["kept"] > 0), label=name, **look)
        shares.plot(own["number"], 100 * own["density"].where(own["density"] > 0), label=name, **look)
    for each, label in ((counts, "weights kept"), (shares, "share kept (%)")):
        each.set_yscale("log")
        each.set_ylabel(label, fontsize=8)
    shares.set_xlabel("layer, from input to output", fontsize=8)
    plot.legend_right(counts)
    plot.title(figure, f"Weights kept per layer: {what}")
    return figure


def _draw_blocks(axes: Axes, layers: Sequence[str], below: Sequence[Axes]) -> None:
    """Boxes with the names of the blocks; layers on a shortcut are marked, and every other block is shaded below."""
    axes.set_axis_off()
    axes.set_ylim(0, 1)
    position = 0.5
    for number, (block, members) in enumerate(groupby(layers, key=_block)):
        width = len(list(members))
        axes.axvspan(position + 0.06, position + width - 0.06, 0.35, 1.0, color=plot.FAINT, alpha=0.6, linewidth=0)
        name = block if width > 1 else _short(block)
        axes.text(position + width / 2, 0.68, name, ha="center", va="center", fontsize=7 if width > 1 else 6)
        if number % 2:
            for each in below:
                each.axvspan(position, position + width, color=plot.PALE, alpha=0.5, linewidth=0, zorder=0)
        position += width
    shortcuts = [number for number, layer in enumerate(layers, start=1) if _is_shortcut(layer)]
    axes.plot(shortcuts, [0.12] * len(shortcuts), linestyle="", marker="v", color=plot.GREY, markersize=3.5)
    if shortcuts:
        axes.text(shortcuts[-1] + 0.5, 0.12, "shortcut", va="center", fontsize=6, color=plot.GREY)
    axes.set_xlim(0.5, len(layers) + 0.5)


def _block(layer: str) -> str:
    return layer.split(".")[0]


def _part(layer: str) -> str:
    return f"{_block(layer)} shortcut" if _is_shortcut(layer) else _block(layer)


def _is_shortcut(layer: str) -> bool:
    return "downsample" in layer or "shortcut" in layer


def _short(block: str) -> str:
    return {"linear": "lin", "conv1": "c1"}.get(block, block[:4])

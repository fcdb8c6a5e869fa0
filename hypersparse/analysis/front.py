"""The front of a search: accuracy against sparsity, and where it crosses the accuracy that was asked for."""

from typing import Any

import pandas as pd

from hypersparse.analysis import plotting as plot
from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.runs.find import Found, Point


def front(found: Found, min_accuracy: float, *, name: str) -> AnalysisResult:
    """Held-out accuracy of the fine-tuned networks, and the scores of the copies before."""
    held = found.best.sparsity if found.best else None
    rows = [
        {"sparsity": copy.sparsity, "what": "pruned copy, training images", "accuracy": 100 * copy.score}
        for copy in found.copies
    ]
    rows += [
        {"sparsity": point.sparsity, "what": f"{_course(point)}, {images} images", "accuracy": 100 * accuracy}
        for point in found.points
        for images, accuracy in (("held-out", point.held_out), ("test", point.test))
    ]
    frame = pd.DataFrame(rows)
    figure, ((axes,),) = plot.panels(width=plot.PAGE)
    groups = list(dict.fromkeys(frame["what"]))
    for group, style in zip(groups, plot.line_styles(len(groups)), strict=True):
        own = frame[frame["what"] == group].sort_values("sparsity")
        axes.plot(1 - own["sparsity"], own["accuracy"], label=group, linewidth=1.2, markersize=4, **style)
    if found.best is not None:
        chosen: dict[str, Any] = {"markersize": 11, "markerfacecolor": "none", "color": plot.GREY, "linestyle": ""}
        axes.plot([1 - found.best.sparsity], [100 * found.best.held_out], marker="o", label="chosen", **chosen)
    axes.axhline(100 * min_accuracy, color=plot.GREY, linestyle="--", linewidth=1.0, label="asked for")
    if found.dense is not None:
        axes.axhline(100 * found.dense, color=plot.GREY, linestyle=":", linewidth=1.0, label="dense, held-out images")
    plot.sparsity_axis(axes, frame["sparsity"])
    axes.set_ylabel("accuracy (%)", fontsize=plot.TEXT)
    plot.legend_right(axes)
    said = "no network" if held is None else f"{100 * held:g} % sparse"
    plot.title(figure, f"The sparsest network with {100 * min_accuracy:g} % accuracy: {said}")
    plot.thin_ticks(figure)
    return AnalysisResult(name, figure, frame)


def _course(point: Point) -> str:
    return "fine-tuned copy" if point.shared else "ART alone"

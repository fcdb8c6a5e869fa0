"""Training images on a t-SNE map, by learning order (figure 4 of the paper) and by label errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from numpy.typing import NDArray

from hypersparse.analysis.plotting import COLORS, GREY, MARKERS, PAGE, TEXT, AnalysisResult, class_label, panels, title
from reproduction.learning_order.compression_position import LearningOrder, level_names
from reproduction.learning_order.position_figures import class_name, label_error_words
from reproduction.learning_order.samples import Samples
from reproduction.learning_order.tsne import Points

NAME, HARDNESS = "map", "map-hardness"
WINDOWS = ((0.0, 0.05), (0.40, 0.45), (0.95, 1.0))  # of the images in CP order
DRAWN = 250  # points a panel, as many as every tenth of 5 % of CIFAR
SIGMAS = 2.0  # half-axes of an ellipse
FEWEST = 8  # images of a class for an ellipse
MOST_CLASSES = 10  # with a colour; of more, the most frequent ones
BEHIND = 3000  # faint points that show the whole map


@dataclass(frozen=True, eq=False)
class SampleOrder:
    """The images in CP order for one sparsity, averaged over seeds."""

    name: str  # such as `98 % pruned`
    settings: dict[str, Any]
    positions: NDArray[np.float64]
    order: NDArray[np.int64]  # of all images on the map, the earliest first


def sample_orders(networks: Sequence[LearningOrder], chosen: NDArray[np.int64]) -> list[SampleOrder]:
    """The order of the `chosen` images at each sparsity; CP is averaged over seeds, ties are random."""
    groups: dict[tuple[Any, ...], list[LearningOrder]] = {}
    for network in networks:
        groups.setdefault(tuple(network.settings.values()), []).append(network)
    shuffled = np.random.default_rng(0).permutation(len(chosen))  # files may be sorted by class
    found = []
    names = level_names([members[0].settings for members in groups.values()])
    for name, members in zip(names, groups.values(), strict=True):
        positions = np.mean([network.positions for network in members], axis=0)[chosen]
        order = shuffled[np.argsort(positions[shuffled], kind="stable")]
        found.append(SampleOrder(name, members[0].settings, positions, order))
    return found


def window(order: NDArray[np.int64], start: float, end: float) -> NDArray[np.int64]:
    """The images from `start` to `end` of the order, as fractions.

    >>> window(np.arange(20), 0.95, 1.0).tolist(), window(np.arange(20), 0.4, 0.45).tolist()
    ([19], [8])
    """
    return order[round(start * len(order)) : round(end * len(order))]


def analyze(levels: Sequence[SampleOrder], samples: Samples, points: Points, *, total: int) -> AnalysisResult:
    """The first 5 %, 40 to 45 % and the last 5 % of the images of every level."""
    rows, counts, seen = [], [], []
    figure, axes = panels(len(levels), len(WINDOWS), width=PAGE, height=0.95 + 1.95 * len(levels))
    looks = class_markers(samples, np.concatenate([window(level.order, *WINDOWS[0]) for level in levels]))
    for level, across in zip(levels, axes, strict=True):
        for (start, end), each in zip(WINDOWS, across, strict=True):
            inside = window(level.order, start, end)
            drawn = inside[:: max(1, round(len(inside) / DRAWN))]
            _draw_panel(each, samples, points, inside, drawn, looks)
            shares = _shares(samples, inside)
            each.set_title(f"{_window_name(start, end)}: {_most(shares)}", fontsize=TEXT - 1, loc="left")
            words = {**level.settings, "start": start, "end": end}
            rows.append(_rows(samples, points, drawn).assign(**words, compression_position=level.positions[drawn]))
            counts.append({**words, "images": len(inside), **shares, "embedding": points.source})
            seen.append({"level": level.name, "images": _window_name(start, end), "classes": _most(shares)})
        across[0].set_ylabel(level.name, fontsize=TEXT)
    _finish(figure, looks, samples, points, total)
    title(figure, _headline(levels, samples))
    tables = {"map-classes": pd.DataFrame(counts), "map-windows": pd.DataFrame(seen).assign(embedding=points.source)}
    return AnalysisResult(NAME, figure, pd.concat(rows, ignore_index=True), tables)


def analyze_hardness(samples: Samples, points: Points, *, total: int) -> AnalysisResult:
    """A panel for each number of wrong annotators."""
    if samples.hardness is None:
        raise ValueError("the hardness of the images is not known")
    kinds, classes = list(range(samples.people + 1)), _common(samples, samples.hardness)
    columns = 2 if len(kinds) > 1 else 1
    figure, axes = panels(-(-len(kinds) // columns), columns, width=PAGE, height=0.95 + 2.6 * (-(-len(kinds) // 2)))
    looks, rows, spreads = class_markers(samples, np.arange(len(samples))), [], []
    for kind, each in zip(kinds, axes.flat, strict=True):
        (inside,) = np.nonzero(samples.hardness == kind)
        drawn = inside[:: max(1, round(len(inside) / DRAWN))]
        _draw_panel(each, samples, points, inside, drawn, looks)
        words = f"{label_error_words(kind, samples.people)}: {len(inside):,} images"
        each.set_title(words, fontsize=TEXT, loc="left")
        rows.append(_rows(samples, points, drawn))
        spread = _spread(samples, points, inside, classes)
        spreads.append({"human_label_errors": kind, "images": len(inside), "classes": len(classes), "spread": spread})
    table = pd.DataFrame(spreads).assign(embedding=points.source)
    _finish(figure, looks, samples, points, total)
    known = table["spread"].dropna()
    wider = len(known) > 1 and known.is_monotonic_increasing
    words = "Images with more label errors are spread wider" if wider else "Images by number of label errors"
    widths = f": mean width of {len(classes)} classes {', '.join(f'{spread:.1f}' for spread in known)}"
    title(figure, words + (widths if classes else ""))
    return AnalysisResult(HARDNESS, figure, pd.concat(rows, ignore_index=True), {"map-spread": table})


def ellipse_of(points: NDArray[Any]) -> tuple[NDArray[np.float64], float, float, float]:
    """Centre, width, height and angle in degrees of the ellipse two standard deviations around.

    >>> ellipse_of(np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -2.0], [0.0, 2.0]]))[0].tolist()
    [0.0, 0.0]
    """
    variances, directions = np.linalg.eigh(np.cov(points.astype(np.float64).T))
    width, height = 2 * SIGMAS * np.sqrt(np.maximum(variances, 0.0))
    angle = float(np.degrees(np.arctan2(directions[1, 0], directions[0, 0])))
    return points.mean(0, dtype=np.float64), float(width), float(height), angle


def class_markers(samples: Samples, among: NDArray[np.int64]) -> dict[int, dict[str, Any]]:
    """Colour and marker by label; of more than ten classes, the ten most frequent `among` some images."""
    counts = np.bincount(samples.labels[among], minlength=len(samples.classes))
    shown = sorted(np.argsort(-counts, kind="stable")[:MOST_CLASSES].tolist())
    return dict(zip(shown, class_styles(len(shown)), strict=True))


def _draw_panel(
    axes: Axes,
    samples: Samples,
    points: Points,
    inside: NDArray[np.int64],
    drawn: NDArray[np.int64],
    looks: dict[int, dict[str, Any]],
) -> None:
    where = points.coordinates
    behind = where[:: max(1, len(where) // BEHIND)]
    axes.plot(behind[:, 0], behind[:, 1], ",", color="#CBD2DA", zorder=0)
    for label, look in looks.items():
        own = drawn[samples.labels[drawn] == label]
        axes.plot(where[own, 0], where[own, 1], linestyle="", markersize=_size(look), markeredgewidth=0, **look)
        everyone = inside[samples.labels[inside] == label]
        if len(everyone) >= FEWEST:
            centre, width, height, angle = ellipse_of(where[everyone])
            axes.add_patch(
                Ellipse(tuple(centre), width, height, angle=angle, facecolor="none", edgecolor=look["color"], lw=0.9)
            )
    others = drawn[~np.isin(samples.labels[drawn], list(looks))]
    axes.plot(where[others, 0], where[others, 1], ".", color=GREY, markersize=2.0, zorder=1)
    _frame(axes, where)


def _size(look: dict[str, Any]) -> float:
    return 4.4 if look["marker"] == "*" else 2.7  # a star has little ink


def _frame(axes: Axes, where: NDArray[np.float32]) -> None:
    """The same part of the map in every panel, without tick labels."""
    low, high = np.percentile(where, [0.2, 99.8], axis=0)
    margin = 0.06 * (high - low)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
    axes.set_xticks([])
    axes.set_yticks([])


def _finish(figure: Figure, looks: dict[int, dict[str, Any]], samples: Samples, points: Points, total: int) -> None:
    handles = [
        Line2D([], [], linestyle="", markersize=1.5 * _size(look), markeredgewidth=0, label=name, **look)
        for name, look in ((class_label(samples.classes[label]), look) for label, look in looks.items())
    ]
    if len(looks) < len(samples.classes):
        handles.append(Line2D([], [], linestyle="", marker=".", color=GREY, label="others"))
    part = f"all {total:,}" if len(samples) == total else f"{len(samples):,} of {total:,}"
    figure.legend(
        handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=TEXT - 1, handletextpad=0.2,
        title=f"t-SNE of {part} training images of {samples.data} by {points.source}; ellipses: 2 standard deviations",
        title_fontsize=TEXT - 1.5,
    )  # fmt: skip


def _headline(levels: Sequence[SampleOrder], samples: Samples) -> str:
    found = [
        sum(share > 0 for share in _shares(samples, window(level.order, *WINDOWS[0])).values()) for level in levels
    ]
    words = [f"{count} ({level.name.replace(' pruned', '')})" for count, level in zip(found, levels, strict=True)]
    return f"Classes among the first 5 % of the images: {', '.join(words)}"


def _shares(samples: Samples, inside: NDArray[np.int64]) -> dict[str, float]:
    counts = np.bincount(samples.labels[inside], minlength=len(samples.classes))
    return {name: count / max(len(inside), 1) for name, count in zip(samples.classes, counts.tolist(), strict=True)}


def _most(shares: dict[str, float]) -> str:
    name = max(shares, key=lambda each: shares[each])
    return f"{100 * shares[name]:.0f} % are {class_name(name)}"


def _window_name(start: float, end: float) -> str:
    if start == 0:
        return f"first {100 * end:g} %"
    return f"last {100 * (1 - start):.3g} %" if end == 1 else f"{100 * start:g} to {100 * end:g} %"


def _rows(samples: Samples, points: Points, drawn: NDArray[np.int64]) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "place": samples.places[drawn],
            "class": [samples.classes[label] for label in samples.labels[drawn]],
            "x": points.coordinates[drawn, 0],
            "y": points.coordinates[drawn, 1],
            "embedding": points.source,
        }
    )
    return frame if samples.hardness is None else frame.assign(human_label_errors=samples.hardness[drawn])


def _common(samples: Samples, hardness: NDArray[np.int64]) -> list[int]:
    """Classes with enough images of every hardness, so that mean widths are comparable."""
    counts = [
        np.bincount(samples.labels[hardness == kind], minlength=len(samples.classes))
        for kind in range(samples.people + 1)
    ]
    return np.flatnonzero(np.min(counts, axis=0) >= FEWEST).tolist()


def _spread(samples: Samples, points: Points, inside: NDArray[np.int64], classes: Sequence[int]) -> float:
    """Width of a class: the root of the sum of its two variances, averaged over the classes."""
    own = [points.coordinates[inside[samples.labels[inside] == label]] for label in classes]
    return float(np.mean([np.sqrt(each.var(0, ddof=1).sum()) for each in own])) if own else float("nan")


def class_styles(count: int) -> list[dict[str, Any]]:
    """Colour and marker of each class: ten distinct colours, other markers where they repeat."""
    ten = (*COLORS, "#000000", "#E58BBB")
    return [{"color": ten[n % len(ten)], "marker": MARKERS[n % len(MARKERS)]} for n in range(count)]

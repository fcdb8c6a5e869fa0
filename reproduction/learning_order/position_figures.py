"""Figures of Compression Position: classes by label errors beside the paper, and class accuracy over the epochs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hypersparse.analysis import plotting as plot
from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.analysis.plotting import AnalysisResult
from reproduction.learning_order import compression_position as order
from reproduction.learning_order.compression_position import ALL, DENSE, LearningOrder
from reproduction.learning_order.samples import Samples

NAME, ACCURACY = "positions", "class-accuracy"
SHADES = ("#7FB8D9", "#3D8FBF", "#0B5F91", "#052F4A")  # of hardness 0 to 3, light to dark
HARDNESS_MARKERS = "os^D"
MOST_CLASSES = 20  # drawn; of more, the first half and the last half are shown
APART = 0.17  # between ours and the paper's, in classes
LONGEST_TITLE = 85  # letters that fit a page's width


def analyze(runs: Sequence[FinishedRun], samples: Samples) -> AnalysisResult:
    """CP by class and hardness of every sparsity, beside the paper's table where it has one."""
    return analyze_rows(order.by_seed(order.learning_orders(runs, samples), samples), samples.data)


def analyze_rows(rows: pd.DataFrame, data: str, name: str = NAME) -> AnalysisResult:
    """The same from rows as `by_seed` makes them."""
    means = order.over_seeds(rows, data)
    found = order.agreement(means)
    tables = {
        f"{name}-classes": order.by_class(means),
        f"{name}-agreement": found,
        f"{name}-table": order.paper_layout(means),
    }
    if means["paper"].notna().any():
        tables[f"{name}-difference"] = order.paper_layout(means, "difference")
    if rows["seed"].nunique() > 1:
        tables[f"{name}-seeds"] = rows
    figure = _draw(means, found, data)
    models = {str(model).rpartition(":")[2] for model in rows["model"]}
    if len(models) == 1:  # a page may have the same figure of several
        plot.title(figure, f"{figure.get_suptitle()} ({models.pop()})")
    return AnalysisResult(name, figure, means, tables)


def _draw(means: pd.DataFrame, found: pd.DataFrame, data: str) -> Figure:
    groups = list(order.levels(means))
    classes = shown_classes(groups[-1][1])
    figure, axes = plot.panels(len(groups), 1, width=plot.PAGE, height=0.9 + 1.45 * len(groups), sharex=True)
    names = order.level_names([dict(facts) for _, facts in found.iterrows()])
    for each, (_, level), (_, facts), name in zip(axes[:, 0], groups, found.iterrows(), names, strict=True):
        _draw_level(each, level, classes)
        seeds = "" if facts["seeds"] == 1 else f", {facts['seeds']} seeds"
        each.set_title(f"{name}{seeds}", loc="left", fontsize=plot.TEXT)
        each.set_title(_level_words(facts, level["class"].nunique()), loc="right", fontsize=plot.TEXT - 1)
        each.set_ylim(0, 1)
        each.set_ylabel("CP")
    axes[-1, 0].set_xticks(range(len(classes)), map(plot.class_label, classes), rotation=90 if len(classes) > 12 else 0)
    if words := _left_out(means["class"].nunique()):
        axes[-1, 0].set_xlabel(f"{words} in the lowest panel" if len(groups) > 1 else words)
    plot.title(figure, _headline(found, names, data))
    if handles := _handles(means):
        figure.legend(
            handles=handles, loc="outside lower left", ncols=6, frameon=False, fontsize=plot.TEXT - 1, handletextpad=0.3
        )
    return figure


def shown_classes(level: pd.DataFrame) -> list[str]:
    """From the first class to the last; of very many only those at both ends."""
    ordered = level[level["human_label_errors"] == ALL].sort_values("compression_position")["class"].tolist()
    half = MOST_CLASSES // 2
    return ordered if len(ordered) <= MOST_CLASSES else [*ordered[:half], *ordered[-half:]]


def _left_out(classes: int) -> str:
    half = MOST_CLASSES // 2
    return "" if classes <= MOST_CLASSES else f"the first {half} and the last {half} of {classes} classes"


def _draw_level(axes: Axes, level: pd.DataFrame, classes: Sequence[str]) -> None:
    hard = level["human_label_errors"].max() != ALL
    apart = APART if level["paper"].notna().any() else 0.0
    for place, name in enumerate(classes):
        own = level[(level["class"] == name) & ((level["human_label_errors"] >= 0) == hard)]
        own = own.sort_values("human_label_errors")
        for column, shift, filled in (("compression_position", -apart, True), ("paper", apart, False)):
            values = own[column].to_numpy()
            if np.isnan(values).all():
                continue
            axes.plot([place + shift] * len(values), values, color=plot.GREY, linewidth=0.6, zorder=1)
            for errors, value in zip(own["human_label_errors"], values, strict=True):
                axes.plot(place + shift, value, clip_on=False, **_look(errors, filled=filled))
    axes.axhline(0.5, color=plot.GREY, linewidth=0.6, linestyle=":")
    axes.grid(visible=False, axis="x")
    for place in range(0, len(classes), 2):
        axes.axvspan(place - 0.5, place + 0.5, color=plot.PALE, alpha=0.5, linewidth=0, zorder=0)
    axes.set_xlim(-0.5, len(classes) - 0.5)


def _look(errors: int, *, filled: bool) -> dict[str, Any]:
    number = min(max(int(errors), 0), len(SHADES) - 1)
    shade = plot.BLUE if errors == ALL else SHADES[number]
    color = shade if filled else plot.ORANGE
    return {
        "marker": HARDNESS_MARKERS[number], "linestyle": "", "markersize": 4.5, "color": color,
        "markerfacecolor": color if filled else "white", "markeredgewidth": 0.9, "zorder": 2,
    }  # fmt: skip


def _handles(means: pd.DataFrame) -> list[Line2D]:
    kinds = sorted({int(errors) for errors in means["human_label_errors"] if errors >= 0}) or [ALL]
    paper = [Line2D([], [], label="paper", **_look(kinds[0], filled=False))] if means["paper"].notna().any() else []
    words = {ALL: "ours", 0: "ours: no annotator wrong" if paper else "no annotator wrong"}
    if kinds == [0, 1]:  # CIFAR-100's images were named by one person each
        words = {kind: label_error_words(kind, 1) for kind in kinds}
    ours = [Line2D([], [], label=words.get(kind, f"{kind} wrong"), **_look(kind, filled=True)) for kind in kinds]
    return ours + paper if len(kinds) > 1 or paper else []


def label_error_words(errors: int, people: int) -> str:
    """How hard images are, in words.

    >>> label_error_words(2, 3), label_error_words(0, 1)
    ('2 of 3 annotators wrong', 'annotator right')
    """
    if people > 1:
        return f"{errors} of {people} annotators wrong"
    return f"annotator {'wrong' if errors else 'right'}"


def _level_words(facts: "pd.Series[Any]", classes: int) -> str:
    words = [f"{class_name(facts['first'])} first, {plot.class_label(facts['last'])} last"]
    if pd.notna(facts["harder_is_later"]):
        words.append(f"harder later in {facts['harder_is_later']:.0f} of {classes}")
    if pd.notna(facts["rank_correlation"]):
        words.append(f"rank correlation with paper {facts['rank_correlation']:.2f}")
    return " · ".join(words)


def class_name(name: str) -> str:
    """As it stands in a sentence: `deer`, but `class 8`."""
    return f"class {name}" if name.isdigit() else plot.class_label(name)


def _headline(found: pd.DataFrame, names: Sequence[str], data: str) -> str:
    sparse = found.assign(level=[name.replace(" pruned", "") for name in names])[found["sparsity"] > DENSE]
    if len(sparse) == 0:
        return f"Order in which the dense network learns the classes of {data}"
    sample_orders = {str(first): list(own["level"]) for first, own in sparse.groupby("first", sort=False)}
    if len(sample_orders) == 1 and len(sparse) > 1:
        return f"Learned first by pruned networks: {class_name(next(iter(sample_orders)))} at every sparsity"
    firsts = [f"{class_name(first)} at {', '.join(names)}" for first, names in sample_orders.items()]
    words = f"Learned first by pruned networks: {'; '.join(firsts)}"
    return words if len(words) <= LONGEST_TITLE else f"Order in which pruned networks learn the classes of {data}"


def analyze_classes(runs: Sequence[FinishedRun], samples: Samples) -> AnalysisResult:
    """Test accuracy of each class over the epochs, and its area under the curve beside CP."""
    networks = order.learning_orders(runs, samples)
    curves = [_accuracies(network, samples) for network in networks]
    shown: dict[tuple[Any, ...], tuple[LearningOrder, pd.DataFrame]] = {}
    for network, own in zip(networks, curves, strict=True):  # one of each; even a seed may have been trained twice
        shown.setdefault(tuple(network.settings.values()), (network, own))
    areas = _areas(networks, curves, samples)
    rows = pd.concat(curves, ignore_index=True)
    return AnalysisResult(ACCURACY, _draw_accuracy(list(shown.values()), areas), rows, {"class-accuracy-area": areas})


def epochs_of(network: LearningOrder) -> NDArray[np.int64]:
    """The epochs of the run over which it was counted: pre-training, or those with pruned copies."""
    phases = network.run.record["phase"]
    if network.sparsity == DENSE:
        (epochs,) = np.nonzero(np.cumsum(phases != phases[0]) == 0)
        return epochs[: network.epochs]
    (scored,) = np.nonzero(phases == "regularize")
    return scored if len(scored) else np.arange(len(phases))


def _accuracies(network: LearningOrder, samples: Samples) -> pd.DataFrame:
    record, epochs = network.run.record, epochs_of(network)
    right = record["class_correct"][epochs].astype(float)
    right[right < 0] = np.nan
    accuracy = right / np.maximum(record["class_total"], 1)
    frame = pd.DataFrame(accuracy, columns=list(samples.classes)).assign(epoch=epochs)
    long = frame.melt(id_vars="epoch", var_name="class", value_name="test_accuracy")
    return long.assign(**network.settings, seed=network.run.seed)


def area_under_curve(values: NDArray[Any]) -> float:
    """Of a curve with a value an epoch, over its length: between 0 and 1 as the values are.

    >>> area_under_curve(np.array([0.0, 1.0, 1.0]))
    0.75
    """
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return float(known.mean()) if len(known) else float("nan")
    return float(np.trapezoid(known)) / (len(known) - 1)


def _areas(networks: Sequence[LearningOrder], curves: Sequence[pd.DataFrame], samples: Samples) -> pd.DataFrame:
    """By network and class, over seeds."""
    parts = []
    for network, own in zip(networks, curves, strict=True):
        classes = own.sort_values("epoch").groupby("class", sort=False)["test_accuracy"]
        areas = classes.apply(lambda values: area_under_curve(values.to_numpy())).rename("test_area").reset_index()
        positions = order.by_seed([network], samples)
        parts.append(positions[positions["human_label_errors"] == ALL].merge(areas, on="class"))
    named = pd.concat(parts).rename(columns={"psi": "training_area"})  # psi's mean over a class is that curve's mean
    means = named.groupby(["sparsity", "model", "method", "class"], sort=False)
    return means[["compression_position", "training_area", "test_area"]].mean().reset_index()


def _draw_accuracy(networks: Sequence[tuple[LearningOrder, pd.DataFrame]], areas: pd.DataFrame) -> Figure:
    shown = min(areas["class"].nunique(), MOST_CLASSES)
    each = 0.6 + 0.13 * shown  # inches
    figure, axes = plot.panels(
        len(networks), 2, width=plot.PAGE, height=0.9 + each * len(networks), width_ratios=(2.2, 1), sharey="row"
    )
    names = order.level_names([network.settings for network, _ in networks])
    for (left, right), (network, curves), name in zip(axes, networks, names, strict=True):
        words = network.settings
        own = areas[(areas[list(words)] == pd.Series(words)).all(axis=1)].sort_values("compression_position")
        same = order.rank_correlation(own["test_area"], -own["compression_position"])
        half = MOST_CLASSES // 2
        own = own if len(own) <= MOST_CLASSES else pd.concat([own[:half], own[-half:]])
        image = _draw_grid(left, curves.pivot(index="class", columns="epoch", values="test_accuracy").loc[own["class"]])
        left.set_title(_order_words(name, same), loc="left", fontsize=plot.TEXT)
        _draw_areas(right, own)
    left_out = _left_out(areas["class"].nunique())
    axes[-1, 0].set_xlabel(f"epoch ({left_out} are shown)" if left_out else "epoch")
    axes[-1, 1].set_xlabel("CP and areas under the curve")
    axes[0, 1].legend(
        loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=3, frameon=False, fontsize=plot.TEXT - 1.5,
        columnspacing=0.8, handletextpad=0.1, borderaxespad=0.1,
    )  # fmt: skip
    bar = figure.colorbar(image, ax=axes[:, 0].tolist(), location="bottom", shrink=0.4, aspect=30, pad=0.02)
    bar.set_label("test accuracy of the class, unpruned network", fontsize=plot.TEXT - 1)
    bar.ax.tick_params(labelsize=plot.TEXT - 1)
    plot.title(figure, "Class accuracy over the epochs, classes sorted by Compression Position")
    return figure


def _draw_grid(axes: Axes, grid: pd.DataFrame) -> AxesImage:
    """Classes down, epochs across."""
    extent = (int(grid.columns[0]) - 0.5, int(grid.columns[-1]) + 0.5, len(grid) - 0.5, -0.5)
    axes.set_yticks(range(len(grid)), map(plot.class_label, grid.index))
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return axes.imshow(grid, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest", extent=extent)


def _order_words(name: str, same: float | None) -> str:
    return name if same is None else f"{name}: rank correlation of test area with -CP {same:.2f}"


def _draw_areas(axes: Axes, own: pd.DataFrame) -> None:
    places = np.arange(len(own))
    looks: list[tuple[str, str, dict[str, Any]]] = [
        ("compression_position", "CP", {"marker": "D", "color": plot.ORANGE, "markerfacecolor": "white"}),
        ("training_area", "area, training", {"marker": "o", "color": plot.BLUE}),
        ("test_area", "area, test", {"marker": "^", "color": plot.GREY}),
    ]
    for column, label, look in looks:
        axes.plot(own[column], places, linestyle="", markersize=4, label=label, **look)
    axes.set_xlim(-0.03, 1.03)
    axes.tick_params(axis="y", length=0)
    plot.style_axes(axes)

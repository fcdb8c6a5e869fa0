"""The first table and figure of the page: CIFAR, both networks, beside the paper's numbers."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hypersparse.analysis import paper
from hypersparse.analysis.finished_runs import load
from hypersparse.analysis.plotting import BLUE, FAINT, GREY, PAGE, TEXT, AnalysisResult, legend, panels, title
from hypersparse.analysis.tables import format_cells
from hypersparse.plurals import how_many
from hypersparse.runs.store import RunStore
from hypersparse.storage.schemas import MachineTable
from reproduction.tables import markdown

METHOD, DENSE = "art-hypersparse", "dense"
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
MODELS = {"resnet32": "ResNet-32", "vgg19": "VGG-19"}
BESIDE = 0.12  # between markers of one sparsity
ROWS = {"best": "best epoch", "last": "last epoch", "paper": "paper, best epoch"}


def accuracies(store: RunStore) -> pd.DataFrame:
    """The paper's cells of dense networks and of ART with HyperSparse, with ours."""
    return paper.accuracy(store, _own(paper.table("accuracy"), "method", METHOD, DENSE))


def headline(store: RunStore) -> AnalysisResult:
    """The paper's cells and ours; `data` has only those with runs of ours."""
    cells = accuracies(store)
    known = _own(paper.table("regularized_epochs"), "penalty", METHOD.removeprefix("art-"))  # it has not all of them
    names = {"dataset": "data", "epochs_mean": "paper_epochs", "epochs_std": "paper_epochs_deviation"}
    known = known.rename(columns=names)[["model", "sparsity", *names.values()]]
    cells = cells.merge(known, on=["data", "model", "sparsity"], how="left")
    ours = [_epochs(store, *cell) for cell in _places(cells)]
    columns: dict[str, Any] = {
        "epochs": [each.mean for each in ours],
        "epochs_deviation": [each.deviation for each in ours],
    }
    cells = cells.assign(**columns)
    there = cells[cells["seeds"] > 0].reset_index(drop=True)
    return AnalysisResult("headline", _draw(cells), there)


def lines(store: RunStore, found: AnalysisResult) -> list[str]:
    """The rows, the figure and the machines, as Markdown."""
    if found.data.empty:
        return ["Missing: there is no finished run of these networks yet."]
    runs = [run for cell in _places(found.data) for run in paper.runs_of(_cell(*cell), store)]
    results = [run.result for run in load([run.path for run in runs]) if run.result["until"] is None]
    machines = sorted({_machine(result["machine"]) for result in results})
    count = how_many(len(results), "run")
    return [
        *markdown(_rows(found.data)),
        "",
        f"![Accuracy over sparsity, ours and the paper's](reproduction/{found.name}.png)",
        "",
        "Test accuracy in per cent of dense networks and of ART with HyperSparse, mean ± sample deviation over seeds.",
        "The number of seeds is in brackets if there are several; the paper has five.",
        f"The table is made of {count} in [results](../results), on {' and on '.join(machines)}.",
        f"Best epochs are picked on the test set, as in the paper's code.{_without_runs(found.data)}",
        "",
    ]


def _rows(there: pd.DataFrame) -> pd.DataFrame:
    """Three rows for each network: its best and last epoch and the paper's, with a column for each sparsity."""
    shown = format_cells(there)
    several = [f" ({seeds})" if seeds > 1 else "" for seeds in there["seeds"]]
    cells = {
        (row, *place): text + (also if row == "best" else "")
        for row in ROWS
        for place, text, also in zip(_places(there), shown[row], several, strict=True)
    }
    levels = sorted(_own(paper.table("accuracy"), "method", METHOD, DENSE)["sparsity"].unique())
    networks = list(dict.fromkeys((data, model) for data, model, _ in _places(there)))
    return pd.DataFrame(
        [
            {"network": _named(*network) if row == "best" else "", "accuracy": words}
            | {
                _level(level): cells.get((row, *network, level), "" if row == "paper" else "missing")
                for level in levels
            }
            for network in networks
            for row, words in ROWS.items()
        ]
    )


def _without_runs(there: pd.DataFrame) -> str:
    """A sentence that names the networks without a row, if there are any."""
    known = {(data, model) for data, model, _ in _places(there)}
    gone = [_named(data, model) for data in DATA for model in MODELS if (data, model) not in known]
    return f"\nMissing so far: {'; '.join(gone)}." if gone else ""


def _places(cells: pd.DataFrame) -> list[tuple[str, str, float]]:
    return list(zip(cells["data"], cells["model"], cells["sparsity"], strict=True))


def _named(data: str, model: str) -> str:
    return f"{DATA[data]}, {MODELS[model]}"


def _level(sparsity: float) -> str:
    return f"{100 * sparsity:g} %" if sparsity else DENSE


def _draw(cells: pd.DataFrame) -> Figure:
    trained = cells[cells["seeds"] > 0]
    places = [data for data in DATA if data in set(trained["data"])] or list(DATA)[:1]
    figure, axes = panels(len(places), len(MODELS), width=PAGE, height=0.3 + 2.4 * len(places))
    for row, data in zip(axes, places, strict=True):
        for each, model in zip(row, MODELS, strict=True):
            own = cells[(cells["data"] == data) & (cells["model"] == model)]
            _draw_model(each, own)
            each.set_title(
                _named(data, model) + ("" if own["seeds"].any() else ": no runs yet"), loc="left", fontsize=TEXT
            )
        row[0].set_ylabel("test accuracy (%)", fontsize=8)
    for each in axes[-1]:
        each.set_xlabel("sparsity", fontsize=8)
    legend(axes[0, 0], loc="lower left")
    title(figure, "ART with HyperSparse: our runs and the paper")
    return figure


def _draw_model(axes: Axes, cells: pd.DataFrame) -> None:
    look: dict[str, Any] = {
        "linestyle": "",
        "markersize": 5,
        "capsize": 2,
        "linewidth": 1.2,
    }  # a line would hide what lies below it
    dense, cells = cells[cells["sparsity"] == 0], cells[cells["sparsity"] > 0].reset_index(drop=True)
    for column, words, color in (("paper", "paper", FAINT), ("best", "ours, best epoch", BLUE)):
        dashes: dict[str, Any] = {"color": color, "linestyle": "--", "linewidth": 1.2}
        axes.plot([], [], label=f"dense: {words}", **dashes)  # in the legend, though one network's may be missing
        for level in dense[column].dropna():
            axes.axhline(level, **dashes)
    places = cells.index - BESIDE
    axes.errorbar(
        places, cells["paper"], yerr=cells["paper_deviation"], label="paper, best epoch", color=GREY, marker="s", **look
    )
    ours = cells[cells["seeds"] > 0]
    for name, fill, beside in (("best", BLUE, 0.0), ("last", "white", BESIDE)):
        spread = ours[f"{name}_deviation"].astype(float)
        axes.errorbar(
            ours.index + beside, ours[name], yerr=spread, label=f"ours, {name} epoch", color=BLUE, marker="o",
            markerfacecolor=fill, **look,
        )  # fmt: skip
    axes.set_xticks(range(len(cells)), [_level(sparsity) for sparsity in cells["sparsity"]])


def _epochs(store: RunStore, data: str, model: str, sparsity: float) -> paper.SeedValues:
    counts = [paper.epochs_to_mask(run) for run in paper.runs_of(_cell(data, model, sparsity), store)]
    return paper.SeedValues(tuple(float(count) for count in counts if count is not None))


def _own(known: pd.DataFrame, column: str, *wanted: str) -> pd.DataFrame:
    """The rows of one of the paper's tables for these data and models."""
    rows = known[known["dataset"].isin(DATA) & known["model"].isin(MODELS) & known[column].isin(wanted)]
    return rows.sort_values(["dataset", "model", "sparsity"])


def _cell(data: str, model: str, sparsity: float) -> SimpleNamespace:
    """A cell, with the fields of a row of the paper's table."""
    return SimpleNamespace(dataset=data, model=model, method=METHOD if sparsity else DENSE, sparsity=sparsity)


def _machine(machine: MachineTable) -> str:
    return f"{machine['device']} in {machine['precision']} with PyTorch {machine['torch'].partition('+')[0]}"

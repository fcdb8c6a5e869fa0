"""The headline of the README, made of the stored runs: CIFAR, both networks, beside the paper's numbers."""

import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hypersparse.analysis import paper
from hypersparse.analysis.finished_runs import load
from hypersparse.analysis.plotting import BLUE, FAINT, GREY, PAGE, TEXT, AnalysisResult, legend, panels, title, write
from hypersparse.analysis.tables import readable, render
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import write_text

METHOD, DENSE = "art-hypersparse", "dense"
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
MODELS = {"resnet32": "ResNet-32", "vgg19": "VGG-19"}
RESULTS = Path("results")  # where runs lie if nobody says
BEGIN = "<!-- made by hypersparse paper --page docs/reproduction.md --readme README.md -->"  # finds its place: as it is
END = "<!-- up to here -->"
BESIDE = 0.12  # between markers of one sparsity
ROWS = {"best": "best epoch", "last": "last epoch", "paper": "paper, best epoch"}


def write_headline(store: RunStore, readme: Path, page: Path) -> list[Path]:
    """Put the rows and the figure of the stored runs between the two marks of a README; the figure lies by the page."""
    before, after = around(readme)
    study = headline(store)
    written = write(page.with_suffix(""), study) if len(study.data) else []
    block = "\n".join([BEGIN, "", *lines(store, study, readme, page), "", END])
    write_text(readme, before + block + after)
    return [readme, *written]


def around(readme: Path) -> tuple[str, str]:
    """What stands before and after the headline."""
    before, begin, rest = _text(readme).partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RunError(f"{readme} has no place for the headline: put these two lines there, `{BEGIN}` and `{END}`.")
    return before, after


def command(store: RunStore, page: Path, readme: Path | None) -> str:
    """What makes a page, and the headline of a README, of stored runs, as one types it where these paths hold.

    >>> command(RunStore("results"), Path("docs/page.md"), None)
    'hypersparse paper --page docs/page.md'
    """
    results = [] if store.root == RESULTS else ["--results", store.root.as_posix()]
    also = ["--readme", readme.as_posix()] if readme else []
    return shlex.join(["hypersparse", "paper", *results, "--page", page.as_posix(), *also])


def headline(store: RunStore) -> AnalysisResult:
    """The cells of the headline, the paper's and ours; `data` has only those with runs of ours."""
    cells = paper.accuracy(store, _own(paper.table("accuracy"), "method", METHOD, DENSE))
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


def lines(store: RunStore, study: AnalysisResult, readme: Path, page: Path) -> list[str]:
    """Rows, figure, and what they were made on, as Markdown."""
    if study.data.empty:
        return ["Missing: no finished run of the headline is stored yet."]
    rows = _rows(study.data)
    runs = [run for cell in _places(study.data) for run in paper.runs_of(_cell(*cell), store)]
    results = [run.result for run in load([run.path for run in runs]) if run.result["until"] is None]
    machines = sorted({_machine(result["machine"]) for result in results})
    count = f"{len(results)} run{'s' if len(results) > 1 else ''}"
    picture = page.with_suffix("") / f"{study.name}.png"
    stored, made, drawn = (
        Path(os.path.relpath(path, readme.parent)).as_posix() for path in (store.root, page, picture)
    )
    return [
        *render(rows, rows, "md").splitlines(),
        "",
        f"![Accuracy over sparsity, ours beside the paper's]({drawn})",
        "",
        "Test accuracy in per cent of dense networks and of ART with HyperSparse at six sparsities, deviations where",
        f"there are several seeds (their number in brackets; the paper has five); of {count} in [{stored}]({stored}),",
        f"on {' and on '.join(machines)}.",
        f"Best epochs are picked on the test set, as by the paper's code.{_without_runs(study.data)} Table, figure and",
        f"[all tables and figures]({made}), also of other methods, are made anew from there by",
        f"`{command(store, page, readme)}`.",
    ]


def _rows(there: pd.DataFrame) -> pd.DataFrame:
    """Three rows for each network: its best and last epoch and the paper's, with a column for each sparsity."""
    shown = readable(there)
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
    return f" Missing so far: {'; '.join(gone)}." if gone else ""


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
                _named(data, model) + ("" if own["seeds"].any() else ": ours missing"), loc="left", fontsize=TEXT
            )
        row[0].set_ylabel("test accuracy (%)", fontsize=8)
    for each in axes[-1]:
        each.set_xlabel("sparsity", fontsize=8)
    legend(axes[0, 0], loc="lower left")
    title(figure, "ART with HyperSparse, ours beside the paper's")
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


def _epochs(store: RunStore, data: str, model: str, sparsity: float) -> paper.Ours:
    counts = [paper.epochs_to_mask(run) for run in paper.runs_of(_cell(data, model, sparsity), store)]
    return paper.Ours(tuple(float(count) for count in counts if count is not None))


def _own(known: pd.DataFrame, column: str, *wanted: str) -> pd.DataFrame:
    """The rows of one of the paper's tables on the headline's data and models."""
    rows = known[known["dataset"].isin(DATA) & known["model"].isin(MODELS) & known[column].isin(wanted)]
    return rows.sort_values(["dataset", "model", "sparsity"])


def _cell(data: str, model: str, sparsity: float) -> SimpleNamespace:
    """As a row of the paper's table has it."""
    return SimpleNamespace(dataset=data, model=model, method=METHOD if sparsity else DENSE, sparsity=sparsity)


def _machine(machine: dict[str, Any]) -> str:
    return f"{machine['device']} in {machine['precision']} with PyTorch {machine['torch'].partition('+')[0]}"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None

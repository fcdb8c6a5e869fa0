"""The README's picture and table: accuracy over the sparsity with file sizes, and the networks of the zoo."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from hypersparse import zoo
from hypersparse.analysis import plotting
from hypersparse.analysis.plotting import BLUE, GREY, ORANGE, PAGE, TEXT, AnalysisResult, legend, panels
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import write_text
from hypersparse.zoo import Entry
from reproduction.headline import DATA, MODELS, accuracies
from reproduction.tables import markdown

README, RESULTS, FIGURES = Path("README.md"), Path("results"), Path("docs/reproduction")  # of a checkout
TIMES = Path(__file__).parents[1] / "benchmarks" / "2026-11-19-zoo.json"
BEGIN = "<!-- picture and table: begin, written by `python -m reproduction` -->"
END = "<!-- picture and table: end -->"
COLORS = dict(zip(MODELS, (BLUE, ORANGE), strict=True))
PICTURE = "accuracy-and-size"
PAPER: dict[str, Any] = {"linestyle": "", "marker": "s", "markersize": 5, "markerfacecolor": "none", "zorder": 3}


def write(root: Path) -> list[Path]:
    """Replace the text between the two marks of the README, and write the picture."""
    before, after = split(root)
    found = picture(RunStore(root / RESULTS), zoo.entries())
    figures = plotting.write(root / FIGURES, found)
    write_text(root / README, before + "\n".join([BEGIN, "", *lines(zoo.entries()), "", END]) + after)
    return [root / README, *figures]


def split(root: Path) -> tuple[str, str]:
    """The text before and after the README's table."""
    before, begin, rest = _text(root / README).partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RunError(f"{root / README} has no place for the table; add these two lines: `{BEGIN}` and `{END}`.")
    return before, after


def lines(entries: Sequence[Entry]) -> list[str]:
    """The picture and a row for each network of the zoo, as Markdown."""
    times = pd.read_json(TIMES)
    shown = [each for each in entries if each.name == f"{each.data}-{each.model}-{_level(each)}"]
    rows = [{**_row(each), **_times(times[times["name"] == each.name])} for each in shown]
    return [
        f"![Accuracy over sparsity, with file sizes]({FIGURES}/{PICTURE}.png)",
        "",
        *markdown(pd.DataFrame(rows)),
        "",
        "These are [networks of the package](docs/zoo.md), trained by ART. The accuracy is that of the file in per",
        "cent. Times are for one image on one thread of an AMD EPYC (Zen 5). The dense twin runs in the",
        f"faster of ONNX Runtime and OpenVINO ([measurement](benchmarks/{TIMES.stem}.md)).",
        "Try one with `hypersparse serve NAME`.",
    ]


def _level(entry: Entry) -> str:
    """The sparsity in the name of a network that was trained by its preset's recipe."""
    return entry.name.rpartition("-")[2]


def _row(entry: Entry) -> dict[str, str]:
    return {
        "network": f"`{entry.name}`",
        "accuracy": f"{100 * entry.test_accuracy:.2f}",
        "kept weights": f"{entry.kept:,}",
        "kB": f"{entry.bytes / 1e3:.0f}",
    }


def _times(rows: pd.DataFrame) -> dict[str, str]:
    """Milliseconds of the sparse runtime and of the better dense engine; missing where they were not measured."""
    if rows.empty:
        return {"ms": "missing", "dense ms": "missing", "speedup": "missing"}
    ours = rows["engine"] == "hypersparse"
    sparse, dense = float(rows.loc[ours, "milliseconds"].min()), float(rows.loc[~ours, "milliseconds"].min())
    return {"ms": f"{sparse:.3f}", "dense ms": f"{dense:.2f}", "speedup": f"{dense / sparse:.1f}x"}


def picture(store: RunStore, entries: Sequence[Entry]) -> AnalysisResult:
    """Accuracy of the best epoch over the sparsity, ours and the paper's; points of the zoo have their kilobytes."""
    cells = accuracies(store)
    figure, axes = panels(1, len(DATA), width=PAGE, height=2.7)
    for each, (data, name) in zip(axes[0], DATA.items(), strict=True):
        _draw(each, cells[cells["data"] == data], [entry for entry in entries if entry.data == data])
        each.set_title(name, loc="left", fontsize=TEXT)
    axes[0][0].set_ylabel("test accuracy (%)", fontsize=TEXT)
    legend(axes[0][0], loc="lower left")
    return AnalysisResult(PICTURE, figure, cells)


def _draw(axes: Axes, cells: pd.DataFrame, entries: Sequence[Entry]) -> None:
    for model, words in MODELS.items():
        own = cells[(cells["model"] == model) & (cells["sparsity"] > 0)]
        if own["seeds"].any():
            there = own[own["seeds"] > 0]
            look: dict[str, Any] = {"color": COLORS[model], "marker": "o", "markersize": 4, "linewidth": 1.2}
            axes.plot(1 - there["sparsity"], there["best"], **look, label=f"{words}, ours")
            _write_sizes(axes, there, [entry for entry in entries if entry.model == model], COLORS[model])
        axes.plot(1 - own["sparsity"], own["paper"], **PAPER, markeredgecolor=COLORS[model])
    axes.plot([], [], **PAPER, markeredgecolor=GREY, label="paper")
    plotting.sparsity_axis(axes, cells.loc[cells["sparsity"] > 0, "sparsity"])


def _write_sizes(axes: Axes, cells: pd.DataFrame, entries: Sequence[Entry], color: str) -> None:
    for cell in cells.to_dict("records"):
        name = f"{cell['data']}-{cell['model']}-{cell['sparsity']:g}"
        for entry in entries:
            if entry.name == name:
                place: Any = (1 - cell["sparsity"], cell["best"])
                first = cell["sparsity"] == cells["sparsity"].min()
                axes.annotate(
                    f"{entry.bytes / 1e3:.0f} kB", place, (-4 if first else -5, -14 if first else -9),
                    textcoords="offset points", ha="left" if first else "right", fontsize=6.5, color=color,
                )  # fmt: skip


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None

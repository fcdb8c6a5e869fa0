"""Compression Position on the page of results: figures and the paper's table beside ours."""

from collections.abc import Sequence

import pandas as pd

from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.analysis.paper import table
from hypersparse.analysis.plotting import AnalysisResult, class_label, file_name
from reproduction.learning_order.compression_position import ALL, IN_THE_PAPER, PAPER_DATA, agreement
from reproduction.learning_order.position_figures import analyze_rows
from reproduction.learning_order.stored_positions import read_positions, runs_with_positions
from reproduction.superclasses import SUPERCLASSES
from reproduction.tables import details, markdown

MOST_CLASSES = 10  # of a table with a column each
FACTS = {
    "seeds": "seeds",
    "first": "first class",
    "paper_first": "first, paper",
    "last": "last class",
    "paper_last": "last, paper",
    "harder_is_later": "classes with harder images later",
    "rank_correlation": "rank correlation, cells",
    "rank_correlation_classes": "rank correlation, classes",
    "mean_difference": "mean absolute difference",
}


def analyze(runs: Sequence[FinishedRun]) -> list[AnalysisResult]:
    """A figure for each model and data set with stored means."""
    kept = runs_with_positions(runs)
    if not kept:
        return []
    rows = read_positions(kept)
    rows = rows[rows["method"].isin(IN_THE_PAPER)]
    groups = rows.groupby(["data", "model"], sort=True)
    return [
        analyze_rows(own, str(data), file_name("positions", str(data), str(model))) for (data, model), own in groups
    ]


def table_below(drawn: AnalysisResult) -> list[str]:
    """Tables under the figure: agreement with the paper, and every cell beside its number."""
    means = drawn.data
    beside_paper = drawn.name.startswith(f"positions-{PAPER_DATA}-")  # any model: it does not say which one was its
    facts = agreement(means)
    levels = sorted(set(table("compression_position")["sparsity"])) if beside_paper else sorted(facts["sparsity"])
    lines = markdown(_facts(facts, levels))
    if means["class"].nunique() <= MOST_CLASSES:
        cells = _cells(means)
        said = "Every class by number of wrong annotators"
        lines += ["", *details(said, markdown(cells))]
    elif set(means["class"]) == {name for names in SUPERCLASSES.values() for name in names}:
        kinds = _kinds(means)
        said = f"Means of the {len(kinds)} super-classes (five classes each), sorted by the first column"
        lines += ["", *details(said, markdown(kinds))]
    return lines


def _facts(facts: pd.DataFrame, levels: Sequence[float]) -> pd.DataFrame:
    """A row for each level, missing or not, without empty columns."""
    there = [name for name in FACTS if facts[name].notna().any()]
    known = {float(row["sparsity"]): row for _, row in facts.iterrows()}
    rows = []
    for level in levels:
        row = known.get(level)
        words = {"seeds": "missing"} if row is None else {FACTS[name]: class_label(_word(row[name])) for name in there}
        rows.append({"sparsity": _level(level), **words})
    return pd.DataFrame(rows).fillna("")


def _cells(means: pd.DataFrame) -> pd.DataFrame:
    """Our means, the paper's in brackets: sparsity and wrong annotators down, classes across."""
    rows = []
    for _, own in means.groupby(["sparsity", "human_label_errors"], sort=True):
        sparsity, errors = float(own["sparsity"].iloc[0]), int(own["human_label_errors"].iloc[0])
        words = {"sparsity": _level(sparsity), "annotators wrong": "all images" if errors == ALL else str(errors)}
        rows.append(words | {class_label(str(row["class"])): _cell(row) for _, row in own.iterrows()})
    return pd.DataFrame(rows).fillna("")


def _kinds(means: pd.DataFrame) -> pd.DataFrame:
    """Super-classes down, sparsities across."""
    kind_of = {name: kind for kind, names in SUPERCLASSES.items() for name in names}
    whole = means[means["human_label_errors"] == ALL]
    weighted = whole.assign(
        kind=whole["class"].map(kind_of), sum=whole["compression_position"] * whole["images"]
    )  # classes have as many images each, unless some are held out
    sums = weighted.groupby(["kind", "sparsity"])[["sum", "images"]].sum()
    across = (sums["sum"] / sums["images"]).unstack("sparsity").sort_index(axis="columns")
    across = across.sort_values(across.columns[0])
    shown = across.map(lambda position: f"{position:.3f}").rename(columns=_level, index=class_label)
    return shown.rename_axis(index="super-class", columns=None).reset_index()


def _cell(row: "pd.Series[float]") -> str:
    ours = f"{row['compression_position']:.3f}"
    return ours if pd.isna(row["paper"]) else f"{ours} ({row['paper']:.3f})"


def _level(sparsity: float) -> str:
    return "dense" if sparsity == 0 else f"{sparsity:g}"


def _word(value: object) -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)

"""Tables as text, with means and deviations, in several formats."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pandas as pd


def count_verdicts(frame: pd.DataFrame) -> str:
    """The count of each verdict, or of the cells with runs if there are no verdicts."""
    verdicts = [name for name in map(str, frame) if name.endswith("verdict")]
    if not verdicts:
        there = int((frame["seeds"] > 0).sum())
        return f"{there} with runs of ours, {len(frame) - there} missing"
    counts = {name.removesuffix("_verdict"): _counted(frame[name]) for name in verdicts}
    first, *others = counts
    more = [f"by the {name} epoch {counts[name]}" for name in others if counts[name] != counts[first]]
    return "; ".join([counts[first], *more])


def _counted(verdicts: "pd.Series[str]") -> str:
    return ", ".join(f"{count} {name}" for name, count in verdicts.value_counts().items())


def column_title(name: object) -> str:
    """A column's name with spaces.

    >>> column_title("best_verdict")
    'best verdict'
    """
    return str(name).replace("_", " ")


def format_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Means and deviations put together, such as 92.69 ± 0.22, and differences with intervals: +0.76 (-1.09 to 2.60).

    The interval from `low` to `high` is that of the column before it. A variant's name says its method and penalty.
    """
    columns: dict[str, list[str]] = {}
    said = {"method", "penalty"} if "variant" in frame else set()
    for before, name in pairwise([None, *frame]):
        if str(name).endswith("_deviation") or name in said or name == "high":
            continue
        if name == "low":
            rows = zip(frame[before], frame["low"], frame["high"], strict=True)
            columns[str(before)] = [_interval(*row) for row in rows]
            continue
        deviations = frame.get(f"{name}_deviation")
        if deviations is None:
            columns[str(name)] = [plain_text(value) for value in frame[name]]
        else:
            columns[str(name)] = [_together(*pair) for pair in zip(frame[name], deviations, strict=True)]
    return pd.DataFrame(columns)


def mark_missing(shown: pd.DataFrame) -> pd.DataFrame:
    """The output of `format_cells` with `missing` where there are no seeds."""
    return shown.assign(seeds=["missing" if seeds == "0" else seeds for seeds in shown["seeds"]])


def render(frame: pd.DataFrame, shown: pd.DataFrame, format: str) -> str:
    """As text in a format; CSV has the plain numbers."""
    if format == "csv":
        return frame.to_csv(index=False)
    if format == "html":
        return shown.rename(columns=column_title).to_html(index=False) + "\n"
    if format == "latex":
        rows = [" & ".join(str(value).replace("±", r"$\pm$") for value in row) + r" \\" for row in shown.to_numpy()]
        header = " & ".join(map(column_title, shown)) + r" \\ \hline"
        return "\n".join([rf"\begin{{tabular}}{{{'l' * len(shown.columns)}}}", header, *rows, r"\end{tabular}"]) + "\n"
    return "\n".join(markdown_table([*map(column_title, shown)], shown.to_numpy().tolist())) + "\n"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table in Markdown.

    >>> markdown_table(["a", "b"], [[1, 2]])
    ['| a | b |', '| --- | --- |', '| 1 | 2 |']
    """
    return ["| " + " | ".join(map(str, line)) + " |" for line in (header, ["---"] * len(header), *rows)]


def _together(value: object, deviation: object) -> str:
    """Both with two digits; a whole number of one run, such as epochs, as it is."""
    alone = not isinstance(deviation, float) or math.isnan(deviation)
    if not isinstance(value, float) or math.isnan(value) or (alone and value.is_integer()):
        return plain_text(value)
    return f"{value:.2f}" if alone else f"{value:.2f} ± {deviation:.2f}"


def _interval(difference: float | None, low: float | None, high: float | None) -> str:
    """Without one, as of a single pair, the difference alone; nothing of nothing."""
    if pd.isna(difference):
        return ""
    return f"{difference:+.2f}" + ("" if pd.isna(low) else f" ({low:.2f} to {high:.2f})")


def plain_text(value: object) -> str:
    """A number in four digits; nothing for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)

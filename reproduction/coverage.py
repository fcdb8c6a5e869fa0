"""Every cell of one of the paper's tables in a few rows: our number, or `missing`."""

from collections.abc import Sequence

import pandas as pd

MISSING = "missing"


def coverage(frame: pd.DataFrame, value: str) -> pd.DataFrame:
    """Sparsities across; methods without any number share one row for each model and data set.

    `frame` has data, model, what tells its rows apart (a method or a goal), sparsity, seeds and the column `value`,
    behind which seeds are shown.
    """
    kind = "method" if "method" in frame else "goal"
    levels = sorted(set(frame["sparsity"]))
    rows = []
    for (data, model), here in frame.groupby(["data", "model"], sort=False):
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, own in here.groupby(kind, sort=False):
            words = _words(own, levels, value)
            mine = (*words, "" if set(words) <= {MISSING, ""} else str(name))  # only those without a number share
            alike.setdefault(mine, []).append(str(name))
        for words, names in alike.items():
            cells = dict(zip(map(_level, levels), words, strict=False))
            rows.append({"data": str(data), "model": str(model), kind: "; ".join(names), **cells})
    return pd.DataFrame(rows)


def _words(own: pd.DataFrame, levels: Sequence[float], value: str) -> tuple[str, ...]:
    """The cells of one method; empty where the paper has no number."""
    cells = {row["sparsity"]: row for _, row in own.iterrows()}
    return tuple(_cell(cells[level], value) if level in cells else "" for level in levels)


def _cell(row: "pd.Series[float]", value: str) -> str:
    if not row["seeds"] or pd.isna(row[value]):
        return MISSING
    whole = float(row[value]).is_integer()
    return f"{row[value]:.{0 if whole else 2}f} ({row['seeds']})"


def _level(sparsity: float) -> str:
    return f"{100 * sparsity:g} %" if sparsity else "dense"

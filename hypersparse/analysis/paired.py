"""Every method compared with the best one of its sparsity, seed by seed."""

from dataclasses import astuple
from typing import Any

import pandas as pd

from hypersparse.analysis.statistics import compare_paired
from hypersparse.analysis.tables import markdown_table

COLUMNS = ("sparsity", "method", "against", "seeds", "difference", "deviation", "low", "high", "t_p", "flip_p")


def paired(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each sparsity and method: its last accuracy minus the best method's, in points.

    `runs` has a row a run with method, sparsity, seed and last. The best method has the highest mean; a dense network,
    which has no sparsity, is against nobody.
    """
    rows = []
    for sparsity, group in runs.groupby("sparsity"):
        seeds: dict[Any, dict[Any, float]] = {
            method: dict(zip(own["seed"], own["last"], strict=True))
            for method, own in group.groupby("method", sort=False)
        }
        best = max(seeds, key=lambda method: sum(seeds[method].values()) / len(seeds[method]))
        for method, values in seeds.items():
            found = compare_paired(values, seeds[best]) if method != best else None
            if found:
                rows.append((sparsity, method, best, *astuple(found)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text."""
    header = ["sparsity", "method", "against", "seeds", "difference", "95 % interval", "p (t)", "p (sign flips)"]
    return header, [_row(row) for row in table.itertuples()]


def markdown(table: pd.DataFrame) -> str:
    """A section with the table and a note."""
    header, rows = cells(table)
    lines = ["## Comparison with the best method, seed by seed", "", *markdown_table(header, rows)]
    note = (
        "Accuracy of the last epoch minus the best method's with the same seed, in points: mean and 95 % interval. "
        "Then two-sided p of Student's t, and p of the sign-flip test, which is at least 2 / 2^seeds. With many "
        "comparisons a small p is likely somewhere."
    )
    return "\n".join([*lines, "", note]) + "\n"


def _row(row: Any) -> list[str]:
    interval = "" if pd.isna(row.low) else f"{row.low:+.2f} to {row.high:+.2f}"
    t_p = "" if pd.isna(row.t_p) else f"{row.t_p:.3f}"
    flip_p = f"{row.flip_p:.3f}" if row.seeds > 1 else ""
    shown = [f"{100 * row.sparsity:g} %", row.method, row.against, str(row.seeds), f"{row.difference:+.2f}"]
    return [*shown, interval, t_p, flip_p]

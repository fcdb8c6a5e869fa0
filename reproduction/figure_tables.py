"""Tables that stand under figures of the page."""

import pandas as pd

from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.plurals import how_many
from reproduction.figures.finetuning import FALLS
from reproduction.tables import markdown


def layers_table(result: AnalysisResult) -> list[str]:
    """Weights kept in each block of the network."""
    return markdown(result.tables[f"{result.name}-blocks"])


def finetuning_table(result: AnalysisResult) -> list[str]:
    """Test accuracy at the start and at the end of each learning rate, a row for each recipe."""
    (gains,) = result.tables.values()
    if gains.empty:
        return []
    rows: dict[str, dict[str, str]] = {}
    for row in gains.to_dict("records"):
        own, rate = rows.setdefault(row["name"], {"recipe": row["name"], "seeds": str(row["seeds"])}), row["rate"]
        kept = f"{row['test_first']:.2f} to {row['test_last']:.2f} ({how_many(row['epochs'], 'epoch')})"
        own[f"rate {rate}"] = f"{own[f'rate {rate}']}, again {kept}" if f"rate {rate}" in own else kept
    return [*_gain_within_a_rate(gains), *markdown(pd.DataFrame(rows.values()).fillna(""))]


def _gain_within_a_rate(gains: pd.DataFrame) -> list[str]:
    steady = gains[~gains["rate"].str.startswith(FALLS) & (gains["epochs"] > 1)]["test_gain"]
    if steady.empty:
        return []
    mean = round(steady.mean(), 2) + 0.0
    return [
        f"Within one learning rate the test accuracy changes by {steady.min():+.2f} to {steady.max():+.2f} points, "
        f"on average by {mean:+.2f}.",
        "",
    ]

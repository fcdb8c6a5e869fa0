"""How far ART is from what it is to do beyond the paper: more in as many epochs, and as much in half of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import pandas as pd

from hypersparse.analysis.finished_runs import FinishedRun, completed_runs, group_by
from hypersparse.analysis.paper import SeedValues, margin, table
from hypersparse.runs.store import RunStore

SLACK = 1.05  # on the epochs: nobody knows before how many the mask takes
DIGITS = 4  # as for variants
MISSING = "missing"
COLUMNS = (
    "data", "model", "aim", "sparsity", "paper", "paper_deviation", "seeds", "recipe", "epochs", "percent_of_epochs",
    "best", "best_deviation", "over_paper", "margin", "last_over_paper", "verdict",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Aim:
    """How many points above the paper, in what share of the epochs of ART as it is, from which sparsity on."""

    description: str
    points: float
    share: float
    least_sparsity: float


AIMS = (
    Aim(description="a point more in as many epochs", points=1.0, share=1.0, least_sparsity=0.99),
    Aim(description="as much in half the epochs", points=0.0, share=0.5, least_sparsity=0.98),
)


def aim(store: RunStore) -> pd.DataFrame:
    """A row an aim and cell of the paper: the best recipe of ART that takes so few epochs, in points above the paper.

    Both by the best epoch, as the paper has it; `margin` is twice the standard error of the difference. What is short
    of an aim by less than that is `open`: more seeds would tell.
    """
    runs = [run for run in completed_runs(store) if run.settings["method"] == "art" and _trained_here(run)]
    groups = group_by(runs, "data", "model", "sparsity")
    known = table("accuracy")
    known = known[known["method"] == "art-hypersparse"]
    rows = [
        {**_cell(each, cell), **_best(each, cell, groups.get((cell.dataset, cell.model, cell.sparsity), []))}
        for each in AIMS
        for cell in known[known["sparsity"] >= each.least_sparsity].itertuples()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def said(frame: pd.DataFrame) -> list[str]:
    """An item an aim: in how many cells it is reached, and how far off the nearest is."""
    return [f"- {_said(each, frame[frame['aim'] == each.description])}" for each in AIMS]


def _said(each: Aim, own: pd.DataFrame) -> str:
    head = f"{each.description.capitalize()}, at {100 * each.least_sparsity:g} % and above:"
    there = own[own["seeds"] > 0]
    if there.empty:
        return f"{head} missing; no run of ART has taken so few epochs."
    counts = (f"{int((there['verdict'] == verdict).sum())} {verdict}" for verdict in ("reached", "open", "short"))
    most = max(there.to_dict("records"), key=lambda row: row["over_paper"])
    off = each.points - most["over_paper"]
    return (
        f"{head} of {len(own)} cells {', '.join(counts)}, {len(own) - len(there)} missing. The most is "
        f"{most['over_paper']:+.2f} ± {most['margin']:.2f} points, {most['model']} on {most['data']} at "
        f"{most['sparsity']:g} ({_counted(most['seeds'])}, {most['epochs']:.0f} epochs): "
        + ("as wanted." if off <= 0 else f"{off:.2f} short of the aim.")
    )


def _counted(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''}"


def _trained_here(run: FinishedRun) -> bool:
    """Whether its epochs are all that its network was trained for."""
    return run.recipe.ablation.name == "none" and not run.recipe.trained


def _cell(each: Aim, cell: Any) -> dict[str, Any]:
    return {
        "data": cell.dataset,
        "model": cell.model,
        "aim": each.description,
        "sparsity": cell.sparsity,
        "paper": cell.accuracy_mean,
        "paper_deviation": cell.accuracy_std,
    }


def _best(each: Aim, cell: Any, runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Of the recipes that take few enough epochs the one with the highest mean."""
    usual = _epochs([run for run in runs if run.matches_preset and run.settings["penalty"] == "hypersparse"])
    few = {
        recipe: members
        for (recipe,), members in group_by(runs, "variant").items()
        if usual and _epochs(members) <= SLACK * each.share * usual
    }
    if not few:
        return {"seeds": 0, "verdict": MISSING}
    ours = {recipe: _accuracies(members, "best") for recipe, members in few.items()}
    recipe = max(ours, key=lambda name: fmean(ours[name].values))
    best, last = ours[recipe], _accuracies(few[recipe], "last")
    over, error = fmean(best.values) - cell.accuracy_mean, margin(best, cell.accuracy_std)
    return {
        "seeds": len(best.values),
        "recipe": recipe,
        "epochs": _epochs(few[recipe]),
        "percent_of_epochs": 100 * _epochs(few[recipe]) / usual,
        "best": best.mean,
        "best_deviation": best.deviation,
        "over_paper": over,
        "margin": error,
        "last_over_paper": fmean(last.values) - cell.accuracy_mean,
        "verdict": _verdict(each.points - over, error),
    }


def _verdict(off: float, error: float) -> str:
    return "reached" if off <= 0 else "open" if off <= error else "short"


def _epochs(runs: Sequence[FinishedRun]) -> float:
    return fmean(run.epochs for run in runs) if runs else 0.0


def _accuracies(runs: Sequence[FinishedRun], which: Literal["last", "best"]) -> SeedValues:
    return SeedValues(tuple(100 * run.scores[which] for run in runs if run.scores))

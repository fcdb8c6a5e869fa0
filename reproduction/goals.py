"""Goals beyond the paper: higher accuracy in the same epochs, the same accuracy in half of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import pandas as pd

from hypersparse.analysis.finished_runs import FinishedRun, completed_runs, group_by
from hypersparse.analysis.paper import SeedValues, margin, table
from hypersparse.plurals import how_many
from hypersparse.runs.store import RunStore

TOLERANCE = 1.05  # on the epochs: the epoch of the mask is not known in advance
DIGITS = 4  # as for variants
MISSING = "missing"
COLUMNS = (
    "data", "model", "goal", "sparsity", "paper", "paper_deviation", "seeds", "recipe", "epochs", "percent_of_epochs",
    "best", "best_deviation", "minus_paper", "margin", "last_minus_paper", "verdict",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Points above the paper, within a share of the preset's epochs, at this sparsity and above."""

    description: str
    points: float
    share: float
    least_sparsity: float


GOALS = (
    Goal(description="1 point above the paper, same epochs", points=1.0, share=1.0, least_sparsity=0.99),
    Goal(description="the paper's accuracy, half the epochs", points=0.0, share=0.5, least_sparsity=0.98),
)


def goals(store: RunStore) -> pd.DataFrame:
    """A row for each goal and cell of the paper, with the best recipe of ART within the goal's epochs.

    Accuracies are those of the best epoch, as in the paper. `margin` is twice the standard error of the difference. A
    goal that is missed by less than the margin is `open`.
    """
    runs = [run for run in completed_runs(store) if run.settings["method"] == "art" and _trained_here(run)]
    groups = group_by(runs, "data", "model", "sparsity")
    known = table("accuracy")
    known = known[known["method"] == "art-hypersparse"]
    rows = [
        {**_cell(each, cell), **_best(each, cell, groups.get((cell.dataset, cell.model, cell.sparsity), []))}
        for each in GOALS
        for cell in known[known["sparsity"] >= each.least_sparsity].itertuples()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def summary(frame: pd.DataFrame) -> list[str]:
    """A list item for each goal: its verdicts, and the cell that comes closest."""
    return [f"- {_summary(each, frame[frame['goal'] == each.description])}" for each in GOALS]


def _summary(each: Goal, own: pd.DataFrame) -> str:
    head = f"**{each.description.capitalize()}**, {100 * each.least_sparsity:g} % sparsity and above:"
    there = own[own["seeds"] > 0]
    if there.empty:
        return f"{head} missing; no stored run of ART takes so few epochs."
    counts = (f"{int((there['verdict'] == verdict).sum())} {verdict}" for verdict in ("reached", "open", "not reached"))
    most = max(there.to_dict("records"), key=lambda row: row["minus_paper"])
    off = each.points - most["minus_paper"]
    return (
        f"{head} {len(own)} cells, {', '.join(counts)}, {len(own) - len(there)} missing. Closest: "
        f"{most['minus_paper']:+.2f} ± {most['margin']:.2f} points, {most['model']} on {most['data']} at "
        f"{100 * most['sparsity']:g} % ({how_many(most['seeds'], 'seed')}, {most['epochs']:.0f} epochs), "
        + ("goal reached." if off <= 0 else f"{off:.2f} below the goal.")
    )


def _trained_here(run: FinishedRun) -> bool:
    """Whether the network was trained from scratch, so that its epochs are all there are."""
    return run.recipe.ablation.name == "none" and not run.recipe.trained


def _cell(each: Goal, cell: Any) -> dict[str, Any]:
    return {
        "data": cell.dataset,
        "model": cell.model,
        "goal": each.description,
        "sparsity": cell.sparsity,
        "paper": cell.accuracy_mean,
        "paper_deviation": cell.accuracy_std,
    }


def _best(each: Goal, cell: Any, runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """The recipe with the highest mean among those within the goal's epochs."""
    usual = _epochs([run for run in runs if run.matches_preset and run.settings["penalty"] == "hypersparse"])
    few = {
        recipe: members
        for (recipe,), members in group_by(runs, "variant").items()
        if usual and _epochs(members) <= TOLERANCE * each.share * usual
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
        "minus_paper": over,
        "margin": error,
        "last_minus_paper": fmean(last.values) - cell.accuracy_mean,
        "verdict": _verdict(each.points - over, error),
    }


def _verdict(off: float, error: float) -> str:
    return "reached" if off <= 0 else "open" if off <= error else "not reached"


def _epochs(runs: Sequence[FinishedRun]) -> float:
    return fmean(run.epochs for run in runs) if runs else 0.0


def _accuracies(runs: Sequence[FinishedRun], which: Literal["last", "best"]) -> SeedValues:
    return SeedValues(tuple(100 * run.scores[which] for run in runs if run.scores))

"""Recipes that differ from the preset, compared with the preset's recipe seed by seed."""

from collections.abc import Hashable, Mapping, Sequence
from math import nan
from statistics import fmean
from typing import Any

import pandas as pd

from hypersparse.analysis.finished_runs import FinishedRun, completed_runs, group_by
from hypersparse.analysis.paper import table
from hypersparse.analysis.statistics import compare_paired, deviation, mean
from hypersparse.runs.store import RunStore

TASK = ("data", "model", "method", "penalty", "sparsity")
DIGITS = 4  # sums of the same accuracies in another order are no difference
NUMBERS = ("last", "best", "epochs", "loss")
COLUMNS = (
    *TASK, "variant", "seeds", "last", "last_deviation", "best", "best_deviation", "minus_paper", "pairs",
    "last_difference", "low", "high", "best_difference", "preset_seeds", "last_minus_preset", "loss", "loss_difference",
    "epochs", "epochs_difference",
)  # fmt: skip
MEASURED = [name for name in COLUMNS if name not in {*TASK, "variant", "seeds", "pairs", "preset_seeds"}]


def variants(store: RunStore) -> pd.DataFrame:
    """A row for each variant: its accuracy, and the mean difference over the seeds that the preset's recipe has too.

    Accuracies are in per cent and differences in points. `low` and `high` are the 95 % interval of the last epoch's
    difference. `last_minus_preset` is the difference from all `preset_seeds`, paired or not. `minus_paper` is the mean
    of the best epochs minus the paper's number for the preset. `loss` is the training loss of the last epoch.
    """
    rows = []
    for task, here in group_by(completed_runs(store), *TASK).items():
        plain = [run for run in here if run.matches_preset]
        own = group_by([run for run in here if not run.matches_preset], "variant")
        rows += [
            {**dict(zip(TASK, task, strict=True)), **_row(name, members, plain)} for (name,), members in own.items()
        ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(MEASURED, float))  # None becomes NaN
    frame["minus_paper"] = frame["best"] - [_in_paper(row) for row in frame[list(TASK)].to_dict("records")]
    return in_order(frame.round(DIGITS))


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table of variants, sorted by task and name."""
    return frame.sort_values([*TASK, "variant"], ignore_index=True)


def _row(name: str, members: Sequence[FinishedRun], plain: Sequence[FinishedRun]) -> dict[str, Any]:
    ours, theirs = _numbers(members), _numbers(plain)
    differences = {number: compare_paired(ours[number], theirs[number]) for number in NUMBERS}
    last = differences["last"]
    shown: dict[str, Any] = {"variant": name, "seeds": len(members)}
    for number in ("last", "best"):
        values = tuple(ours[number].values())
        shown |= {number: mean(values), f"{number}_deviation": deviation(values)}
    shown |= {number: mean(tuple(ours[number].values())) for number in ("epochs", "loss")}
    shown |= {"pairs": last.count if last else 0, "preset_seeds": len(theirs["last"])}
    if ours["last"] and theirs["last"]:
        shown["last_minus_preset"] = fmean(ours["last"].values()) - fmean(theirs["last"].values())
    shown |= {f"{number}_difference": found.difference if found else None for number, found in differences.items()}
    return shown | {"low": last.low if last else None, "high": last.high if last else None}


def _numbers(runs: Sequence[FinishedRun]) -> dict[str, dict[Hashable, float]]:
    """The numbers of each run by its seed."""
    found: dict[str, dict[Hashable, float]] = {number: {} for number in NUMBERS}
    for run in runs:
        if run.scores:
            found["last"][run.seed], found["best"][run.seed] = 100 * run.scores["last"], 100 * run.scores["best"]
        found["epochs"][run.seed] = run.epochs
        if run.log:
            found["loss"][run.seed] = run.log[-1]["loss"]
    return found


def _in_paper(task: Mapping[Hashable, Any]) -> float:
    """The paper's number for the preset's recipe; NaN if it has none."""
    known = table("accuracy")
    same = known[
        (known["dataset"] == task["data"])
        & (known["model"] == task["model"])
        & (known["method"] == f"{task['method']}-{task['penalty']}")
        & (known["sparsity"] == task["sparsity"])
    ]
    return float(same["accuracy_mean"].iloc[0]) if len(same) else nan

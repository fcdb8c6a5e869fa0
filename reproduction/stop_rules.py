"""ART's stopping rules replayed on stored scores: the average of three epochs, and the first release's own score.

Until it stops, a run is the same under both rules, because they only read scores.
"""

from dataclasses import dataclass
from statistics import mean
from typing import Any

import pandas as pd

from hypersparse.analysis.paper import cell_columns, runs_of, table
from hypersparse.methods.art import ART, PrunedCopies
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder

RULES = {"average": ART(), "own_score": ART(stop_reference="first_release")}


@dataclass(frozen=True)
class Stop:
    """Where a rule ends the regularized phase."""

    epochs: int  # trained in the phase
    mask_epochs: int  # up to the one whose mask is kept


def stop_of(run: RunFolder, method: ART) -> Stop | None:
    """Where the rule of `method` ends the phase of a stored run; None if the run ended before."""
    copies = PrunedCopies()
    scored = [entry for entry in run.whole_log() if "pruned_score" in entry]
    for epoch, entry in enumerate(scored):
        best = method.remember(copies, entry["pruned_score"], {}, epoch=epoch)
        if method.stopping_score(best) >= entry["dense_score"]:
            return Stop(epoch + 1, best.epoch + 1)
    return None


def replayed(store: RunStore) -> pd.DataFrame:
    """Epochs trained and epochs to the mask under each rule, of the paper's cells with runs of ours."""
    rows = []
    for cell in table("regularized_epochs").itertuples():
        runs = [run for run in runs_of(cell, store) if any("pruned_score" in entry for entry in run.whole_log())]
        if runs:
            found = {name: [stop_of(run, method) for run in runs] for name, method in RULES.items()}
            rows.append({**cell_columns(cell), "paper": cell.epochs_mean, "seeds": len(runs), **_columns(found)})
    return pd.DataFrame(rows, columns=None if rows else ["seeds"])


def _columns(found: dict[str, list[Stop | None]]) -> dict[str, Any]:
    """Means over seeds by rule; None unless the rule stopped every run."""
    columns: dict[str, Any] = {}
    for name, stops in found.items():
        known = [stop for stop in stops if stop is not None]
        whole = len(known) == len(stops)
        columns[f"{name}_trained"] = float(mean(stop.epochs for stop in known)) if whole else None
        columns[f"{name}_mask"] = float(mean(stop.mask_epochs for stop in known)) if whole else None
    return columns

"""`rows`: every run in a store as one line of a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from hypersparse.errors import HypersparseError
from hypersparse.recipe import KEY_LENGTH
from hypersparse.runs.store import RunStore
from hypersparse.storage.lock import is_locked
from hypersparse.storage.run_folder import RunFolder, times_of
from hypersparse.storage.schemas import Entry, Result, Summary, Tables, number_of
from hypersparse.training.result import summarize


class Outcome(TypedDict):
    """The known facts about an unfinished run, with the keys of a result."""

    dense: Summary | None
    sparse: Summary | None
    kept: int | None
    total: int | None
    epochs: dict[str, int]
    wall_seconds: float
    final_bytes: NotRequired[int]
    dense_bytes: NotRequired[int]


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run: its recipe, progress and results. Unknown values are None."""

    label: str
    seed: int | None = None
    data: str | None = None
    model: str | None = None
    method: str | None = None
    penalty: str | None = None  # of methods that have one
    ablation: str | None = None  # if any
    sparsity: float | None = None  # asked for; of methods without that option, what came out
    status: Literal["finished", "until", "stopped", "running", "damaged"]
    phase: str | None = None  # of the last epoch in the log
    epochs: int = 0  # finished, over all phases
    sparse_last: float | None = None  # accuracies, in 0..1
    sparse_best: float | None = None
    best_picked_on: str | None = None
    dense_last: float | None = None
    kept: int | None = None
    effective_kept: int | None = None  # of those, on some path from input to output
    total: int | None = None
    seconds: float | None = None
    path: Path
    problem: str | None = None  # of a damaged run, in a sentence

    @property
    def name(self) -> str:
        """The shortest name by which `RunStore.find` finds it: the recipe's key and the seed's folder."""
        key = self.label.rpartition("-")[2]
        is_key = len(key) == KEY_LENGTH and all(letter in "0123456789abcdef" for letter in key)
        return f"{key if is_key else self.label}/{self.path.name}"

    @property
    def state(self) -> str:
        """The progress in a few words."""
        if self.status in ("finished", "damaged"):
            return self.status
        if self.status == "until":
            return f"until {self.phase}"
        if not self.epochs:
            return f"{self.status} in the first epoch"
        return f"{self.status} in {self.phase} at epoch {self.epochs}"


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which runs to list; None lists all."""

    data: str | None = None
    model: str | None = None
    method: str | None = None
    sparsity: float | None = None
    seed: int | None = None
    finished: bool | None = None

    def fit(self, row: RunRow) -> bool:
        """Whether a row matches."""
        names = ((self.data, row.data), (self.model, row.model), (self.method, row.method))
        close = row.sparsity is not None and math.isclose(self.sparsity or 0.0, row.sparsity, abs_tol=1e-9)
        return (
            all(wanted is None or (found and wanted in (found, Path(found).stem)) for wanted, found in names)
            and (self.sparsity is None or close)
            and self.seed in (None, row.seed)
            and self.finished in (None, row.status == "finished")
        )


def rows(store: RunStore) -> list[RunRow]:
    """The runs of a store, by name; a damaged run has a row with its problem."""
    return [row_of(run) for run in store.runs()]


def row_of(run: RunFolder) -> RunRow:
    """One run as a row; never fails."""
    try:
        return _read(run)
    except HypersparseError as error:
        return RunRow(label=_label(run, None), status="damaged", path=run.path, problem=str(error))


def _read(run: RunFolder) -> RunRow:
    # As tables, not as a Recipe: a run whose method cannot be imported here is listed all the same.
    recipe, result = run.tables(), current_result(run)
    outcome = from_log(run.log(), recipe) if result is None else result
    sparse, dense = outcome["sparse"], outcome["dense"]
    ended = sparse or dense
    return RunRow(
        label=_label(run, result),
        seed=run.seed(),
        data=recipe["data"]["name"],
        model=recipe["model"]["name"],
        method=recipe["method"]["name"],
        penalty=recipe["method"].get("penalty"),
        ablation=_ablation(recipe),
        sparsity=recipe["method"].get("sparsity", None if result is None else result["sparsity"]),
        status=_status(run, result),
        phase=list(outcome["epochs"])[-1] if outcome["epochs"] else None,
        epochs=sum(outcome["epochs"].values()),
        sparse_last=sparse["last"] if sparse else None,
        sparse_best=sparse["best"] if sparse else None,
        best_picked_on=ended["best_picked_on"] if ended else None,
        dense_last=dense["last"] if dense else None,
        kept=outcome["kept"],
        effective_kept=result.get("effective_kept") if result else None,
        total=outcome["total"],
        seconds=outcome["wall_seconds"],
        path=run.path,
    )


def current_result(run: RunFolder) -> Result | None:
    """The result, unless the run ended `until` a phase and was continued later."""
    result = run.result()
    if result is None or result["until"] is None:
        return result
    return None if len(run.log()) > sum(result["epochs"].values()) else result


def outcome_of(run: RunFolder) -> Result | Outcome:
    """The result, or the facts in the log of an unfinished run."""
    return current_result(run) or from_log(run.log(), run.tables())


def from_log(entries: Sequence[Entry], recipe: Tables) -> Outcome:
    """The facts in the log of an unfinished run; counts may be None."""
    picked_on = "validation_accuracy" if number_of(recipe["data"], "validation") else "test_accuracy"
    unpruned = [entry["kept"] for entry in entries if entry["stage"] != "sparse"]
    totals = [entry["total"] for entry in entries if "total" in entry]  # older logs have none
    # As in a result: only networks as sparse as the last one compare with it.
    sparse = [entry for entry in entries if entry["stage"] == "sparse" and entry["kept"] <= entries[-1]["kept"]]
    phases = [entry["phase"] for entry in entries]
    return {
        "dense": summarize([entry for entry in entries if entry["stage"] == "dense"], picked_on),
        "sparse": summarize(sparse, picked_on),
        "kept": entries[-1]["kept"] if entries else None,
        "total": next(iter(totals + unpruned), None),
        "epochs": {name: phases.count(name) for name in dict.fromkeys(phases)},
        "wall_seconds": times_of(entries)["wall_seconds"],
    }


def _label(run: RunFolder, result: Result | None) -> str:
    path = run.path.resolve()
    if path.name.startswith("seed-"):
        return path.parent.name
    return result["label"] if result else path.name


def _status(run: RunFolder, result: Result | None) -> Literal["finished", "until", "stopped", "running"]:
    if is_locked(run.path):
        return "running"
    if result is None:
        return "stopped"
    return "finished" if result["until"] is None else "until"


def _ablation(recipe: Tables) -> str | None:
    name = recipe["ablation"]["name"] if "ablation" in recipe else "none"
    return None if name == "none" else name

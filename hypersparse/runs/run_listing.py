"""`rows`: every run in a store as one line of a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hypersparse.errors import HypersparseError
from hypersparse.recipe import KEY_LENGTH, parse_toml
from hypersparse.runs.store import RunStore
from hypersparse.storage.lock import is_locked
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.result import Entry, summarize

DAMAGE = (HypersparseError, OSError, LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run: what it is, how far it got, what came out. None where that is not known (yet)."""

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
        """How far it got, in a few words."""
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

    def fit(self, row: Row) -> bool:
        """Whether a row is to be listed."""
        names = ((self.data, row.data), (self.model, row.model), (self.method, row.method))
        return (
            all(wanted is None or wanted in _spellings(found) for wanted, found in names)
            and (self.sparsity is None or _close(self.sparsity, row.sparsity))
            and self.seed in (None, row.seed)
            and self.finished in (None, row.status == "finished")
        )


def rows(store: RunStore, *, filters: Filters | None = None) -> list[Row]:
    """The runs of a store that fit, by name; a damaged one is a row that says so."""
    found = [row_of(run) for run in store.runs()]
    return [row for row in found if (filters or Filters()).fit(row)]


def row_of(run: RunFolder) -> Row:
    """One run as a row; never fails."""
    try:
        return _read(run)
    except DAMAGE as error:
        problem = str(error) if isinstance(error, HypersparseError) else f"{type(error).__name__}: {error}"
        return Row(label=_label(run, None), status="damaged", path=run.path, problem=problem)


def _read(run: RunFolder) -> Row:
    # As tables, not as a Recipe: a run whose method cannot be imported here is listed all the same.
    recipe = parse_toml(run.recipe_file.read_text(), str(run.recipe_file))
    result = current_result(run)
    outcome = from_log(run.log(), recipe) if result is None else result
    sparse, dense = outcome["sparse"] or {}, outcome["dense"] or {}
    wanted = recipe["method"].get("sparsity", None if result is None else result["sparsity"])
    return Row(
        label=_label(run, result),
        seed=run.seed(),
        data=str(recipe["data"]["name"]),
        model=str(recipe["model"]["name"]),
        method=str(recipe["method"]["name"]),
        penalty=recipe["method"].get("penalty"),
        ablation=_ablation(recipe),
        sparsity=_float(wanted),
        status=_status(run, result),
        phase=list(outcome["epochs"])[-1] if outcome["epochs"] else None,
        epochs=sum(outcome["epochs"].values()),
        sparse_last=_float(sparse.get("last")),
        sparse_best=_float(sparse.get("best")),
        best_picked_on=(sparse or dense).get("best_picked_on"),
        dense_last=_float(dense.get("last")),
        kept=_int(outcome["kept"]),
        effective_kept=_int(outcome.get("effective_kept")),
        total=_int(outcome["total"]),
        seconds=_float(outcome["wall_seconds"]),
        path=run.path,
    )


def current_result(run: RunFolder) -> dict[str, Any] | None:
    """The result, unless the run ended `until` a phase then and has gone on since."""
    result = run.result()
    if result is None or result["until"] is None:
        return result
    return None if len(run.log()) > sum(result["epochs"].values()) else result


def outcome_of(run: RunFolder) -> dict[str, Any]:
    """The result, or what the log knows of it so far."""
    recipe = parse_toml(run.recipe_file.read_text(), str(run.recipe_file))
    return current_result(run) or from_log(run.log(), recipe)


def from_log(entries: Sequence[Entry], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of an unfinished run, in the words of result.json; the counts may be None."""
    picked_on = "validation_accuracy" if recipe["data"].get("validation") else "test_accuracy"
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
        "wall_seconds": sum(entry["seconds"] for entry in entries),
    }


def _label(run: RunFolder, result: Mapping[str, Any] | None) -> str:
    path = run.path.resolve()
    if path.name.startswith("seed-"):
        return path.parent.name
    return str(result["label"]) if result else path.name


def _status(run: RunFolder, result: Mapping[str, Any] | None) -> Literal["finished", "until", "stopped", "running"]:
    if is_locked(run.path):
        return "running"
    if result is None:
        return "stopped"
    return "finished" if result["until"] is None else "until"


def _ablation(recipe: Mapping[str, Any]) -> str | None:
    name = recipe.get("ablation", {}).get("name", "none")
    return None if name == "none" else str(name)


def _spellings(name: str | None) -> set[str]:
    return {name, Path(name).stem} if name else set()


def _close(wanted: float, found: float | None) -> bool:
    return found is not None and math.isclose(wanted, found, abs_tol=1e-9)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _int(value: Any) -> int | None:
    return None if value is None else int(value)

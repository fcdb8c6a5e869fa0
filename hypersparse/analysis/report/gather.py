"""`gather`: the content of the report, read from run folders without weights."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from hypersparse.analysis.layers import layer_weights
from hypersparse.errors import HypersparseError, RunError
from hypersparse.runs.run_listing import RunRow, current_result, outcome_of, row_of
from hypersparse.storage.record import read_record
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, number_of

DIGITS = 5  # of a number in a curve: an accuracy over ten thousand images is exact
CURVES = (
    "test_accuracy",
    "validation_accuracy",
    "train_accuracy",
    "dense_score",
    "pruned_score",
    "loss",
    "test_loss",
    "lr",
    "strength",
    "w_kappa",
    "kept",
)
COSTS = (
    "final_bytes",
    "dense_bytes",
    "training_flops",
    "training_flops_sparse",
    "scoring_flops",
    "inference_flops",
    "inference_flops_sparse",
    "shared_seconds",
)
ENDS = ("best", "best_epoch", "last_epoch")
Column = dict[str, Any]  # `at`: the first epoch with a value; `values`, or `runs`: value, how often, value, ...


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """The content of one run; None where a value is unknown."""

    id: str
    row: RunRow
    tables: Mapping[str, Any]  # its recipe
    outcome: Mapping[str, Any]  # the result, or what the log knows of it so far
    content: Mapping[str, Any]  # all that the page shows, ready for JSON


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The runs that could be read, and a message for each that could not."""

    pages: list[RunPage] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)  # run, sentence


def gather(runs: Sequence[RunFolder]) -> Gathered:
    """Read each run once; a damaged one becomes a message."""
    found, ids = Gathered(), dict[str, int]()
    for run in {run.path.resolve(): run for run in runs}.values():
        row = row_of(run)
        if row.problem is not None:
            found.problems.append((str(run.path), row.problem))
            continue
        try:
            found.pages.append(_page(run, row, _identify(row, ids)))
        except HypersparseError as error:
            found.problems.append((str(run.path), str(error)))
    return found


def _identify(row: RunRow, taken: dict[str, int]) -> str:
    """A stable anchor for the run's page; a second run of that name gets a number."""
    name = re.sub(r"[^\w.-]+", "-", row.name)
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}-{taken[name]}"


def _page(run: RunFolder, row: RunRow, name: str) -> RunPage:
    entries, outcome, result = run.log(), outcome_of(run), current_result(run)
    record, notes = _record(run, result.get("classes") if result else None)
    machine = result["machine"].items() if result else ()
    content = {
        **{item.name: _plain(getattr(row, item.name)) for item in fields(RunRow)},
        "id": name,
        "name": row.name,
        "state": row.state,
        **{f"dense_{key}": number_of(outcome["dense"] or {}, key) for key in ENDS},
        **{f"sparse_{key}": number_of(outcome["sparse"] or {}, key) for key in ENDS},
        **{key: rounded(outcome.get(key), 6) for key in COSTS},
        "machine": {key: str(value) for key, value in machine if value is not None},
        "recipe": run.recipe_text(),
        "phases": _phases(entries),
        "curves": {key: column for key in CURVES if (column := _column([entry.get(key) for entry in entries]))},
        "layers": _layers(run),
        "record": record,
        "notes": notes,
    }
    return RunPage(id=name, row=row, tables=run.tables(), outcome=outcome, content=content)


def _phases(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Phases with their first and last epoch, in order."""
    found: list[dict[str, Any]] = []
    for number, entry in enumerate(entries):
        if not found or found[-1]["name"] != entry["phase"]:
            found.append({"name": str(entry["phase"]), "first": number, "seconds": 0.0, "shared": 0})
        found[-1]["last"] = number
        found[-1]["seconds"] += float(entry["seconds"])
        found[-1]["shared"] += bool(entry.get("shared"))
    return [{**phase, "seconds": rounded(phase["seconds"])} for phase in found]


def _layers(run: RunFolder) -> dict[str, list[Any]]:
    found = layer_weights(run)
    return {
        "names": [layer.name for layer in found],
        "kept": [layer.kept for layer in found],
        "totals": [layer.total for layer in found],
    }


def _record(run: RunFolder, classes: list[str] | None) -> tuple[dict[str, Any], list[str]]:
    """Arrays of the record; a damaged record becomes a note."""
    if not run.record_file.exists():
        return {}, []
    try:
        record = read_record(run.record_file)
    except RunError as error:
        return {}, [str(error)]
    found: dict[str, Any] = {}
    nothing = np.array([])
    crossed = [value if value >= 0 else None for value in record.get("crossed", nothing).tolist()]
    for name, values in (("intersection", record.get("intersection", nothing).tolist()), ("crossed", crossed)):
        if column := _column(values):
            found[name] = column
    correct = record.get("class_correct", nothing)
    if correct.size and (correct[-1] >= 0).all():
        found["class_correct"], found["class_total"] = correct[-1].tolist(), record["class_total"].tolist()
        if classes and len(classes) == len(found["class_total"]):
            found["classes"] = classes
    return found, []


def _column(values: Sequence[Any]) -> Column | None:
    """Values from the first to the last known one, run-length encoded if that is shorter.

    >>> _column([None, 0.25, 0.5, None]), _column([8, 8, 8, 8, 8]), _column([None])
    ({'at': 1, 'values': [0.25, 0.5]}, {'at': 0, 'runs': [8, 5]}, None)
    """
    numbers = [rounded(value) for value in values]
    known = [place for place, number in enumerate(numbers) if number is not None]
    if not known:
        return None
    kept = numbers[known[0] : known[-1] + 1]
    runs: list[Any] = []
    for number in kept:
        if runs and runs[-2] == number:
            runs[-1] += 1
        else:
            runs += [number, 1]
    return {"at": known[0], "runs": runs} if len(runs) < len(kept) / 2 else {"at": known[0], "values": kept}


def rounded(value: Any, digits: int = DIGITS) -> float | int | None:
    """A number with `digits` digits; None if it is not finite, since JSON has no such numbers.

    >>> rounded(0.123456789), rounded(77072), rounded(float("nan")), rounded(None)
    (0.12346, 77072, None, None)
    """
    if value is None or isinstance(value, bool | int):
        return value
    number = float(value)
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else rounded(value, 12) if isinstance(value, float) else value

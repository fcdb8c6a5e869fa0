"""Comparison with the paper's tables, cell by cell, with a verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from math import sqrt
from typing import Any, Literal

import pandas as pd

from hypersparse.analysis import statistics
from hypersparse.recipe import Recipe, resolve
from hypersparse.runs.recipe_names import variant
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry

PAPER_SEEDS = 5
ENOUGH_SEEDS = 3  # of ours, for their own deviation to count
Verdict = Literal["reproduced", "better", "worse", "missing"]
WITHOUT_PRETRAINING = "-no-pretrain"


@dataclass(frozen=True)
class SeedValues:
    """The values of our runs of a cell, one for each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return statistics.mean(self.values)

    @property
    def deviation(self) -> float | None:
        """Sample deviation; None for a single seed."""
        return statistics.deviation(self.values)


def margin(ours: SeedValues, paper_deviation: float) -> float:
    """Twice the standard error of the difference between our mean and the paper's.

    The deviation is pooled over both; with fewer than three seeds of ours the paper's stands in.

    >>> round(margin(SeedValues((92.5, 92.6)), 0.22), 3)
    0.368
    """
    count, spread = len(ours.values), paper_deviation
    if count >= ENOUGH_SEEDS and ours.deviation is not None:
        spread = statistics.pooled_deviation(ours.deviation, count, paper_deviation, PAPER_SEEDS)
    return 2 * spread * sqrt(1 / count + 1 / PAPER_SEEDS)


def verdict(ours: SeedValues, paper_mean: float, paper_deviation: float, *, more_is_better: bool = True) -> Verdict:
    """Reproduced if the means differ by at most twice their standard error (`margin`).

    >>> [verdict(SeedValues(values), 92.69, 0.22) for values in ((92.5,), (91.0,), ())]
    ['reproduced', 'worse', 'missing']
    """
    if ours.mean is None:
        return "missing"
    if abs(ours.mean - paper_mean) <= margin(ours, paper_deviation):
        return "reproduced"
    return "better" if (ours.mean > paper_mean) == more_is_better else "worse"


def table(name: str) -> pd.DataFrame:
    """One of the paper's tables: accuracy, regularized_epochs, mask_intersection or compression_position."""
    file = resources.files("hypersparse") / "paper" / f"{name}.csv"
    with file.open() as lines:
        return pd.read_csv(lines)


def accuracy(store: RunStore, cells: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every cell of the accuracy tables: the paper's best, our best and our last epoch (per cent), with verdicts.

    `cells` are some of the table's rows.
    """
    rows = []
    for cell in (table("accuracy") if cells is None else cells).itertuples():
        results = [run.result() for run in runs_of(cell, store)]
        ended = [result["sparse"] or result["dense"] for result in results if result and result["until"] is None]
        parts = [part for part in ended if part]
        best, last = (SeedValues(tuple(100 * part[which] for part in parts)) for which in ("best", "last"))
        known: tuple[float, float] = (cell.accuracy_mean, cell.accuracy_std)  # type: ignore[assignment]
        rows.append(
            {
                **cell_columns(cell),
                "paper": known[0],
                "paper_deviation": known[1],
                "seeds": len(parts),
                "best": best.mean,
                "best_deviation": best.deviation,
                "best_verdict": verdict(best, *known),
                "last": last.mean,
                "last_deviation": last.deviation,
                "last_verdict": verdict(last, *known),
            }
        )
    return pd.DataFrame(rows)


def regularized_epochs(store: RunStore) -> pd.DataFrame:
    """Regularized epochs to the final mask, the paper's and ours; fewer are better."""
    rows = []
    for cell in table("regularized_epochs").itertuples():
        counts = [epochs_to_mask(run) for run in runs_of(cell, store)]
        ours = SeedValues(tuple(float(count) for count in counts if count is not None))
        known: tuple[float, float] = (cell.epochs_mean, cell.epochs_std)  # type: ignore[assignment]
        rows.append(
            {
                **cell_columns(cell),
                "paper": known[0],
                "paper_deviation": known[1],
                "seeds": len(ours.values),
                "epochs": ours.mean,
                "epochs_deviation": ours.deviation,
                "verdict": verdict(ours, *known, more_is_better=False),
            }
        )
    return pd.DataFrame(rows)


def recipe_of(cell: Any) -> Recipe:
    """The paper's recipe for a cell of one of its tables."""
    name: str = getattr(cell, "method", "art")
    penalty: str | None = getattr(cell, "penalty", None)
    method: dict[str, Any] = {"name": name, "sparsity": float(cell.sparsity)}
    if name.startswith("art"):
        words = name.removesuffix(WITHOUT_PRETRAINING).split("-")
        method |= {"name": "art", "penalty": penalty or words[1]}
        if name.endswith(WITHOUT_PRETRAINING):
            method["pretrain_epochs"] = 0
    if name == "dense":
        del method["sparsity"]
    return resolve({"data": {"name": cell.dataset}, "model": {"name": cell.model}, "method": method})


def variant_of(cell: Any) -> str:
    """The variant of a cell, named as for our runs."""
    return variant(recipe_of(cell).to_mapping())


def cell_columns(cell: Any) -> dict[str, Any]:
    """The first columns of the row of a cell."""
    return {"data": cell.dataset, "model": cell.model, "method": variant_of(cell), "sparsity": cell.sparsity}


def runs_of(cell: Any, store: RunStore) -> Iterator[RunFolder]:
    """The finished runs of a cell, one for each seed."""
    folders = sorted((store.root / recipe_of(cell).label).glob("seed-*"))
    return (RunFolder(folder) for folder in folders if (folder / "result.json").is_file())


def epochs_to_mask(run: RunFolder) -> int | None:
    """Regularized epochs up to the one whose pruned copy was kept."""
    regularized: Sequence[Entry] = [entry for entry in run.whole_log() if "best_epoch" in entry]
    return int(regularized[-1]["best_epoch"]) + 1 if regularized else None

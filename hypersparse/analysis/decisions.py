"""What missing runs would decide: how far they narrow the margin of the paper's cells, and what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path

from hypersparse.analysis.paper import PAPER_SEEDS, SeedValues, margin, recipe_of, table
from hypersparse.recipe import Recipe
from hypersparse.runs.experiment import Run
from hypersparse.runs.forecast import CostRow
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import finished, job_of


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The missing runs of one recipe, and the margin of its cell in the paper before and after them."""

    recipe: Recipe
    seeds: int  # finished
    missing: int
    seconds: float | None  # of the missing runs; None if not known
    before: float | None  # points; None without a run
    after: float | None  # None for a recipe that is not in the paper

    @property
    def worth(self) -> tuple[bool, float, float]:
        """Sorts first numbers of a cell by cost, then margins by the points they lose in a minute, then the rest."""
        minutes = inf if self.seconds is None else self.seconds / 60
        if self.after is None:
            return True, inf, minutes
        gain = 0.0 if self.before is None else (self.before - self.after) / max(minutes, 1 / 60)
        return self.before is not None, -gain, minutes


def decisions(
    runs: Sequence[Run], missing: Sequence[Run], costs: Mapping[Path, CostRow], store: RunStore, results: Path | None
) -> list[Decision]:
    """A decision for each recipe with missing runs, the most useful one first; `costs` has a row for each job."""
    deviations = {recipe_of(cell).label: float(cell.accuracy_std) for cell in table("accuracy").itertuples()}  # type: ignore[arg-type]
    grouped: dict[str, list[Run]] = {}
    for run in missing:
        grouped.setdefault(run.recipe.label, []).append(run)
    found = []
    for label, own in grouped.items():
        values = _scores([run for run in runs if run.recipe.label == label], store, results)
        rows = [costs[folder] for run in own if (folder := job_of(run, store).folder) in costs]
        known = all(row.known for row in rows)
        before, after = _margins(values, len(own), deviations.get(label))
        found.append(
            Decision(
                recipe=own[0].recipe,
                seeds=len(values.values),
                missing=len(own),
                seconds=sum(row.seconds for row in rows) if known else None,
                before=before,
                after=after,
            )
        )
    return sorted(found, key=lambda each: each.worth)


def _scores(runs: Sequence[Run], store: RunStore, results: Path | None) -> SeedValues:
    """The best epochs of the finished runs, in per cent."""
    there = [result for run in runs if (result := finished(run, store, results))]
    summaries = [result["sparse"] or result["dense"] for result in there]
    return SeedValues(tuple(100 * summary["best"] for summary in summaries if summary))


def _margins(values: SeedValues, more: int, paper_deviation: float | None) -> tuple[float | None, float | None]:
    """The margin now and with `more` seeds, if their deviation stays the same.

    >>> before, after = _margins(SeedValues((92.5,)), 1, 0.22)
    >>> round(before, 3), round(after, 3)
    (0.482, 0.368)
    """
    if paper_deviation is None:
        return None, None
    count = len(values.values)
    one = margin(values if count else SeedValues((0.0,)), paper_deviation)
    shrinks = sqrt((1 / (count + more) + 1 / PAPER_SEEDS) / (1 / (count or 1) + 1 / PAPER_SEEDS))
    return (one if count else None), one * shrinks

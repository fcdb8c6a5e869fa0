"""What missing runs would decide: how far they narrow the margin of the paper's cells, and what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hypersparse.analysis.paper import PAPER_SEEDS, SeedValues, margin, recipe_of, table
from hypersparse.cli.console import table as printed_table
from hypersparse.cli.console import table_console
from hypersparse.cli.cost import UNKNOWN
from hypersparse.cli.formats import duration
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.session import Session
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.recipe import Recipe, own_code_of
from hypersparse.runs.experiment import Experiment, Run, parse_only
from hypersparse.runs.forecast import CostRow, cost_of
from hypersparse.runs.recipe_names import variants
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import finished, job_of, missing

WORTH = "What the runs decide, the most for a minute first"


@grouped
def decide(
    experiment: Annotated[Path, typer.Argument(help="A TOML file such as experiments/accuracy.toml.")],
    options: TrainingOptions,
    only: str | None = typer.Option(None, help="Some of its runs: data=cifar10,model=resnet32,method=art,seed=0."),
    results: Path = typer.Option(Path("results"), help="Folder of finished runs."),
) -> None:
    """Print what each missing run of an experiment would decide in the paper's tables, and its cost."""
    found, store = Experiment.read(experiment).only(parse_only(only)), options.store
    session, left = Session(options, options.machine(), options.stop()), missing(found.runs, store, results)
    jobs, load = [job_of(run, store) for run in left], session.loader(decode=False)
    costs = cost_of(jobs, session.machine, store.root, results=results, load=load)
    print_decisions(decisions(found.runs, left, costs.by_job, store, results))


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
    runs: Sequence[Run], left: Sequence[Run], costs: Mapping[Path, CostRow], store: RunStore, results: Path | None
) -> list[Decision]:
    """A decision for each recipe with runs `left`, the most useful one first; `costs` has a row for each job."""
    deviations = {recipe_of(cell).label: float(cell.accuracy_std) for cell in table("accuracy").itertuples()}  # type: ignore[arg-type]
    grouped: dict[str, list[Run]] = {}
    for run in left:
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


def print_decisions(found: Sequence[Decision]) -> None:
    """Print what the missing runs decide, a row for each recipe."""
    shown = printed_table(
        "data", "model", "method", ">sparsity", ">seeds", ">time", "decides", title=WORTH, title_justify="left"
    )
    recipes = [each.recipe for each in found]
    names = variants([recipe.to_mapping() for recipe in recipes], own_code=own_code_of(recipes))
    for each, name in zip(found, names, strict=True):
        sparsity = each.recipe.method.sparsity
        shown.add_row(
            *map(escape, (each.recipe.data.name, each.recipe.model.name, name)),
            "" if sparsity is None else f"{100 * sparsity:g} %",
            f"{each.seeds} + {each.missing}",
            UNKNOWN if each.seconds is None else duration(each.seconds),
            _decides(each),
        )
    table_console(highlight=False).print(shown)


def _decides(each: Decision) -> str:
    if each.after is None:
        return "not in the paper"
    if each.before is None:
        return f"first number of a cell, margin ± {each.after:.2f}"
    return f"margin ± {each.before:.2f} to ± {each.after:.2f}"

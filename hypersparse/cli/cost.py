"""The cost of missing runs, as a table."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from hypersparse.analysis.decisions import Decision
from hypersparse.cli.console import table, table_console
from hypersparse.cli.formats import duration
from hypersparse.recipe import own_code_of
from hypersparse.runs.epoch_times import AS_LARGE, is_elsewhere
from hypersparse.runs.forecast import NO_RUNS, Cost, Rows
from hypersparse.runs.recipe_names import variants
from hypersparse.training.machine import Machine

UNKNOWN = "not known"
WORTH = "What the runs decide, the most for a minute first"
LIKE_IT = "like it: finished runs of the method in that phase; others: all on the same data and model"
ELSEWHERE = "on {}: a data set with as many images of the same size"
ONCE = "runs: those that will train the phase; a shared beginning is trained by the first of them"


def print_cost(found: Cost, machine: Machine) -> None:
    """Print the table, and a note if the machine is not this one."""
    console = table_console(highlight=False)
    console.print(cost_table(found))
    if is_elsewhere(machine):
        words = "times are from runs on any GPU, and the phase cache is not considered."
        console.say(f"There is no `{machine.device}` here: {words}", style="dim")


def total_time(found: Cost) -> str:
    """The total time, or a lower bound if some of it is unknown."""
    if found.known:
        return duration(found.seconds)
    return f"at least {duration(found.seconds)}" if found.seconds else UNKNOWN


def cost_table(found: Cost) -> Table:
    """A row per phase; data and model stand above their methods, a method beside its first phase."""
    shown = table("method", "phase", ">runs", ">epochs", ">s/epoch", ">time", "based on")
    before = ("", "")
    for (place, variant, phase), row in found.rows.items():
        if place != before[0]:
            shown.add_row(f"[bold]{escape(place)}[/]")
        epoch_time = f"{row.seconds / row.epochs:.2f}" if row.known and row.epochs else ""
        time = duration(row.seconds) if row.known else UNKNOWN
        words = [str(len(row.jobs)), str(row.epochs), epoch_time, time, ", ".join(row.bases)]
        shown.add_row("" if (place, variant) == before else escape(variant), phase, *words)
        before = place, variant
    shown.add_row("all", "", str(found.runs), str(found.epochs), "", total_time(found), "")
    shown.caption = "\n".join(_notes(found.rows)) or None
    return shown


def print_decisions(found: Sequence[Decision]) -> None:
    """Print what the missing runs decide, a row for each recipe."""
    shown = table(
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


def _notes(rows: Rows) -> list[str]:
    """The meaning of the columns, where it needs one."""
    counts = {(place, variant, len(row.jobs)) for (place, variant, _), row in rows.items()}
    differ = len(counts) > len({(place, variant) for place, variant, _ in counts})  # among the phases of a variant
    notes = [ONCE] if differ else []
    bases = [basis for row in rows.values() for basis in row.bases]
    if all(basis in NO_RUNS for basis in bases):
        return notes
    others = sorted(data for data in AS_LARGE if any(basis.endswith(f" on {data}") for basis in bases))
    return [*notes, "; ".join([LIKE_IT, *map(ELSEWHERE.format, others)])]

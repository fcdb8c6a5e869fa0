"""The cost of missing runs, as a table."""

from rich.markup import escape
from rich.table import Table

from hypersparse.cli.console import table, table_console
from hypersparse.cli.formats import duration
from hypersparse.runs.epoch_times import AS_LARGE, is_elsewhere
from hypersparse.runs.forecast import NO_RUNS, Cost, Rows
from hypersparse.training.machine import Machine

UNKNOWN = "not known"
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

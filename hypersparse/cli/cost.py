"""What missing runs cost, as a table."""

from rich.markup import escape
from rich.table import Table

from hypersparse.cli.console import table_console
from hypersparse.cli.formats import duration
from hypersparse.runs.epoch_times import AS_LARGE, is_elsewhere
from hypersparse.runs.forecast import NO_RUNS, Cost, Rows
from hypersparse.training.machine import Machine

UNKNOWN = "not known"
LIKE_IT = "like it: finished runs of the method in that phase; others: all on the same data and model"
ELSEWHERE = "on {}: of such images there are as many"
ONCE = "runs: those that will train the phase; a common beginning is trained by the first of them"


def print_cost(found: Cost, machine: Machine) -> None:
    """As a table, and what it could not know."""
    console = table_console(highlight=False)
    console.print(cost_table(found))
    if is_elsewhere(machine):
        said = f"There is no `{machine.device}` here: runs of any GPU were looked at, and no stages that are kept."
        console.print(said, style="dim")


def total_time(found: Cost) -> str:
    """In all, as far as it is known."""
    if found.known:
        return duration(found.seconds)
    return f"at least {duration(found.seconds)}" if found.seconds else UNKNOWN


def cost_table(found: Cost) -> Table:
    """Data and model stand above their methods, and a method beside the first of its phases."""
    table = Table("method", box=None, pad_edge=False, caption_justify="left")
    for name in ("phase", "runs", "epochs", "s/epoch", "time", "based on"):
        table.add_column(name, no_wrap=True)
    before = ("", "")
    for (place, variant, phase), row in found.rows.items():
        if place != before[0]:
            table.add_row(f"[bold]{escape(place)}[/]")
        pace = f"{row.seconds / row.epochs:.2f}" if row.known and row.epochs else ""
        time = duration(row.seconds) if row.known else UNKNOWN
        words = [str(len(row.jobs)), str(row.epochs), pace, time, ", ".join(row.bases)]
        table.add_row("" if (place, variant) == before else escape(variant), phase, *words)
        before = place, variant
    table.add_row("all", "", str(found.runs), str(found.epochs), "", total_time(found), "")
    table.caption = "\n".join(_words(found.rows)) or None
    return table


def _words(rows: Rows) -> list[str]:
    """What the columns mean, where that is not plain."""
    counts: dict[tuple[str, str], set[int]] = {}  # of runs in the phases of a variant
    for (place, variant, _), row in rows.items():
        counts.setdefault((place, variant), set()).add(len(row.jobs))
    words = [ONCE] if any(len(several) > 1 for several in counts.values()) else []
    bases = [basis for row in rows.values() for basis in row.bases]
    if all(basis in NO_RUNS for basis in bases):
        return words
    others = sorted(data for data in AS_LARGE if any(basis.endswith(f" on {data}") for basis in bases))
    return [*words, "; ".join([LIKE_IT, *map(ELSEWHERE.format, others)])]

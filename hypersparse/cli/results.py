"""Results of runs that were just trained, as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from hypersparse.cli.console import Console, table
from hypersparse.cli.formats import count, percent
from hypersparse.recipe import own_code_of
from hypersparse.runs.recipe_names import names
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome, is_failure


def outcome_table(outcome: Mapping[str, Any]) -> Table:
    """The dense and the sparse network of a result: accuracy of the last and the best epoch, weights, bytes.

    It fits a terminal of 80 columns.
    """
    parts = {name: outcome[name] for name in ("dense", "sparse") if outcome[name]}
    picked = " or ".join(sorted({part["best_picked_on"] for part in parts.values()})) or "test"
    made = table(
        "", ">last epoch", f">best (on {picked})", ">weights", ">effective", ">of", ">bytes", padding=(0, 1, 0, 0)
    )
    for name, part in parts.items():
        kept, size = ("kept", "final_bytes") if name == "sparse" else ("total", "dense_bytes")
        accuracies = (f"{percent(part['last'])} %", f"{percent(part['best'])} % (epoch {part['best_epoch']})")
        effective = outcome.get("effective_kept") if name == [*parts][-1] else None
        counts = (count(number) for number in (outcome[kept], effective, outcome["total"], outcome.get(size)))
        made.add_row(name, *accuracies, *counts)
    return made


def names_of(jobs: Sequence[Job]) -> list[str]:
    """A unique name for each run."""
    own_code = own_code_of(job.recipe for job in jobs)
    found = names([job.recipe.to_mapping() for job in jobs], "sparsity", "model", "data", own_code=own_code)
    return [f"{name} · seed {job.seed}" for name, job in zip(found, jobs, strict=True)]


def results_table(jobs: Sequence[Job], results: Sequence[Outcome]) -> Table:
    """A row per run: accuracy of the last and the best epoch, and weights. Names are folded before numbers are cut."""
    parts = [result["sparse"] or result["dense"] if isinstance(result, dict) else None for result in results]
    picked = " or ".join(sorted({part["best_picked_on"] for part in parts if part})) or "test"
    shown = table("", ">last epoch", f">best on\n{picked}", ">weights", ">effective", ">of", ">seconds")
    for name, result, part in zip(names_of(jobs), results, parts, strict=True):
        if not isinstance(result, dict):
            shown.add_row(name, "failed" if is_failure(result) else "stopped")
            continue
        accuracies = [f"{percent(part[epoch])} %" if part else "" for epoch in ("last", "best")]
        counts = [count(number) for number in (result["kept"], result.get("effective_kept"), result["total"])]
        shown.add_row(name, *accuracies, *counts, f"{result['wall_seconds']:.1f}")
    return shown


def print_failures(console: Console, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    """Print why runs failed; runs with the same reason are one line."""
    reasons: dict[str, list[str]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        if is_failure(outcome):
            reasons.setdefault(str(outcome), []).append(f"{job.recipe.label} seed {job.seed}")
    for reason, runs in reasons.items():
        others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        console.say(f"{runs[0]}{others}: {reason}", label="failed:", style="red")

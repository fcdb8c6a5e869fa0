"""What is said at the end of several runs, on a terminal of the usual width too."""

import io
from pathlib import Path

from hypersparse.cli.console import Console
from hypersparse.cli.results import outcome_table, print_failures, results_table
from hypersparse.errors import DivergedError
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome
from hypersparse.training.stop import Stopped
from tests.training.small import small

ADVICE = "The loss stopped being finite in epoch 0 (pre-train). Try a lower learning rate (--set training.lr=0.01)."


def ended() -> tuple[list[Job], list[Outcome]]:
    accuracy = {"last": 0.1234, "best": 0.2345, "best_picked_on": "validation"}
    counts = {"kept": 40_048, "effective_kept": 39_999, "total": 20_023_999}
    done = {"sparse": accuracy, "dense": None, "wall_seconds": 12345.6, **counts}
    jobs = [Job(small(method={"growth": growth}), 0, Path()) for growth in (1.125, 1.25, 1.5, 1.75)]
    return jobs, [done, Stopped("test"), DivergedError(ADVICE), DivergedError(ADVICE)]


def test_names_are_folded_before_numbers_are_cut() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(results_table(*ended()))
    lines = out.getvalue().splitlines()
    (numbers,) = [line for line in lines if "12.34 %" in line]
    assert numbers.split()[-8:] == ["12.34", "%", "23.45", "%", "40,048", "39,999", "20,023,999", "12345.6"]
    assert "best on" in lines[0]
    assert "validation" in lines[1]
    assert "…" not in out.getvalue()
    assert [sum(word in line for line in lines) for word in ("stopped", "failed")] == [1, 2]


def test_the_reason_of_a_failure_is_said_whole_and_once() -> None:
    out = io.StringIO()
    jobs, outcomes = ended()
    print_failures(Console(file=out, width=80), jobs, outcomes)
    assert out.getvalue() == f"failed: {jobs[2].recipe.label} seed 0 and 1 more: {ADVICE}\n"


def test_the_table_of_a_run_fits_a_terminal() -> None:
    def network(epoch: int) -> dict[str, object]:
        return {"last": 1.0, "best": 1.0, "best_epoch": epoch, "best_picked_on": "test"}

    counts = {"kept": 185_559, "effective_kept": 185_559, "total": 1_855_578}
    outcome = {"dense": network(11), "sparse": network(538), **counts, "dense_bytes": 7_499_000, "final_bytes": 990_000}
    screen = Console(width=80, file=io.StringIO())
    screen.print(outcome_table(outcome))
    heading, dense, sparse = screen.file.getvalue().splitlines()
    assert dense.startswith("dense ")
    assert sparse.split()[:3] == ["sparse", "100.00", "%"]
    assert "(epoch 538)" in sparse
    assert heading.rstrip().endswith("bytes")

"""The time left of runs that are training, from the epochs they have trained so far."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hypersparse.methods.base import Phase
from hypersparse.runs.forecast import epochs_ahead
from hypersparse.runs.remaining_epochs import Expected
from hypersparse.storage.schemas import Entry
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome, is_failure, is_finished
from hypersparse.training.machine import Machine

FEWEST_EPOCHS = 5  # trained, before the time left is known
RECENT = 10  # epochs, whose mean time the next ones are expected to take


class TimeLeft:
    """The time left of several runs.

    `rest` holds the remaining epochs of each folder before training begins, and `expected` the lengths of phases.
    """

    def __init__(self, jobs: Sequence[Job], rest: Mapping[Path, int], expected: Expected) -> None:
        self.jobs, self.rest = jobs, dict(rest)
        self.epochs: dict[Path, int] = {}
        self.failed: set[Path] = set()
        self._done: set[Path] = set()
        self._began: float | None = None  # start of the first epoch; compilation before it happens once
        self._trained = 0  # epochs since then
        self._lengths = {
            job.folder: {phase.name: expected(job.recipe, phase) for phase in job.recipe.plan()} for job in jobs
        }

    @classmethod
    def of(cls, jobs: Sequence[Job], machine: Machine, runs_dir: Path, *, results: Path | None = None) -> "TimeLeft":
        """The time left of runs that are about to train, estimated from finished runs."""
        return cls(jobs, *epochs_ahead(jobs, machine, runs_dir, results=results))

    def count(self, job: Job, entry: Entry) -> None:
        """An epoch of a run is done."""
        self.epochs[job.folder] = entry["epoch"] + 1
        if not entry.get("shared"):  # shared epochs take no time
            self._trained += 1
            self._began = self._began or time.monotonic() - entry["seconds"]
        self.rest[job.folder] = self._ahead(job, entry)

    def ended(self, job: Job, outcome: Outcome) -> None:
        """A run has ended; a failed one no longer counts."""
        if is_failure(outcome):
            self.failed.add(job.folder)

    def is_done(self, job: Job) -> bool:
        """Whether a run is finished; one that ended `until` an earlier phase may have to continue."""
        if job.folder not in self._done and is_finished(job):
            self._done.add(job.folder)  # so that its file is not read again
        return job.folder in self._done

    def epochs_of(self, job: Job) -> int:
        """The expected epochs of a run."""
        return sum(self._lengths[job.folder].values())

    def seconds(self) -> float | None:
        """The seconds left; None if not known yet."""
        going = [job.folder for job in self.jobs if job.folder not in self.failed and not self.is_done(job)]
        rest = sum(self.rest[folder] for folder in going)
        if rest and (self._began is None or self._trained <= FEWEST_EPOCHS):
            return None
        return (time.monotonic() - self._began) * rest / self._trained if rest and self._began else 0.0

    def _ahead(self, job: Job, entry: Entry) -> int:
        """The expected epochs of a run after this one."""
        lengths = self._lengths[job.folder]
        if entry["phase"] not in lengths:  # a run beyond the requested phase trains to its end
            return 0
        place = list(lengths).index(entry["phase"])
        now, *later = list(lengths.values())[place:]
        return max(0, now - int(entry["phase_epoch"]) - 1) + sum(later)


def seconds_left(plan: Sequence[Phase], phase: Phase, entries: Sequence[Entry]) -> tuple[float, bool]:
    """The seconds left of one run in `phase` of its plan, and whether they are a lower bound.

    A phase that ends by a condition counts no epochs.
    """
    recent = entries[-RECENT:]
    per_epoch = sum(entry["seconds"] for entry in recent) / len(recent)
    phases = plan[plan.index(phase) :]
    done = [entry["phase"] for entry in entries]
    left = sum(each.epochs - done.count(each.name) for each in phases if not each.stop_when)
    return left * per_epoch, any(each.stop_when for each in phases)

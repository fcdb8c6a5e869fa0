"""Trackers: the epochs of runs as scalars in somebody else's program, while they are trained."""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from hypersparse.sparsifier import Sparsifier
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.concurrent_runs import Job

NAMES = (  # of an epoch's line in the log, and what they are called here
    ("loss", "loss"),
    ("test_loss", "test_loss"),
    ("train_accuracy", "train_accuracy"),
    ("test_accuracy", "test_accuracy"),
    ("validation_accuracy", "validation_accuracy"),
    ("dense_score", "dense_score"),
    ("pruned_score", "pruned_score"),
    ("best_score", "best_pruned_score"),
    ("strength", "penalty_strength"),
    ("lr", "learning_rate"),
    ("kept", "kept"),
)
log = logging.getLogger("hypersparse")


def scalars(entry: Mapping[str, Any]) -> dict[str, float]:
    """What is worth seeing of an epoch, by name.

    >>> scalars({"epoch": 3, "phase": "train", "loss": 0.5, "lr": 0.1, "kept": 10, "total": 100})
    {'loss': 0.5, 'learning_rate': 0.1, 'kept': 10.0, 'sparsity': 0.9}
    """
    found = {shown: float(entry[name]) for name, shown in NAMES if isinstance(entry.get(name), int | float)}
    if "total" in entry:  # not in logs that were written before there were trackers
        found["sparsity"] = 1 - entry["kept"] / entry["total"]
    return found


class Tracker(Protocol):
    """One run in another program."""

    epochs: int  # that it has already

    def write(self, entry: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Add an epoch: its line in the log, and the numbers of it worth seeing."""

    def close(self) -> None:
        """The run goes no further for now."""


OpenTracker = Callable[[Job], Tracker]


class TrackerCallback:
    """A callback that adds a run's epochs to a tracker, each once however often the run is stopped or begun again.

    A tracker that fails is reported and left out: it must not end the training.
    """

    def __init__(self, job: Job, show: OpenTracker) -> None:
        self._run, self._show, self._job = RunFolder(job.folder), show, job
        self._tracker: Tracker | None = None
        self._failed = False

    def started(self, sparsifier: Sparsifier, entries: Sequence[Mapping[str, Any]], steps: int) -> None:
        """Nothing to see yet."""

    def stepped(self, step: int) -> None:
        """Too small to see."""

    def finished_epoch(self, entry: Mapping[str, Any]) -> None:
        """Add the epoch, and before it those the tracker does not have."""
        if self._failed:
            return
        try:
            self._add(entry)
        except Exception as error:
            self._failed = True
            log.warning("A tracker failed and is left out from now on; training goes on. %s", error)

    @property
    def over(self) -> bool:
        """Whether there is a tracker of a run that is finished."""
        return self._tracker is not None and self._run.result_file.exists()

    def close(self) -> None:
        """The run goes no further for now."""
        tracker, self._tracker = self._tracker, None
        try:
            if tracker:
                tracker.close()
        except Exception as error:
            log.warning("A tracker could not be closed. %s", error)

    def _add(self, entry: Mapping[str, Any]) -> None:
        if self._tracker is None:
            self._tracker = self._show(self._job)
        if entry["epoch"] < self._tracker.epochs:
            return  # trained again after a crash
        for each in [*self._run.log()[self._tracker.epochs : entry["epoch"]], entry]:
            self._tracker.write(each, scalars(each))
        self._tracker.epochs = entry["epoch"] + 1


class Trackers:
    """Makes the callbacks of runs for one program; a context that ends with all trackers closed."""

    def __init__(self, show: OpenTracker) -> None:
        self._show, self._all = show, list[TrackerCallback]()

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._all:
            each.close()

    def callback(self, job: Job) -> TrackerCallback:
        """Who is told about one of the runs."""
        self._all.append(TrackerCallback(job, self._open))
        return self._all[-1]

    def _open(self, job: Job) -> Tracker:
        for each in self._all:  # a sweep has hundreds of runs, of which a few are trained at a time
            if each.over:
                each.close()
        return self._show(job)

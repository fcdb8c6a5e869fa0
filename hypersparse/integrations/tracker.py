"""The protocol of trackers, which show the epochs of runs in another program during training."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.concurrent_runs import Job

NAMES = ("loss", "test_loss", "train_accuracy", "test_accuracy", "validation_accuracy", "dense_score", "pruned_score",
         "best_score", "strength", "lr", "kept")  # fmt: skip
RENAMED = {"best_score": "best_pruned_score", "strength": "penalty_strength", "lr": "learning_rate"}
log = logging.getLogger("hypersparse")


def scalars(entry: Mapping[str, Any]) -> dict[str, float]:
    """The scalars of an epoch, by name.

    >>> scalars({"epoch": 3, "phase": "train", "loss": 0.5, "lr": 0.1, "kept": 10, "total": 100})
    {'loss': 0.5, 'learning_rate': 0.1, 'kept': 10.0, 'sparsity': 0.9}
    """
    found = {RENAMED.get(name, name): float(entry[name]) for name in NAMES if isinstance(entry.get(name), int | float)}
    if "total" in entry:  # absent in older logs
        found["sparsity"] = 1 - entry["kept"] / entry["total"]
    return found


class Tracker(Protocol):
    """A run in another program."""

    epochs: int  # that it has

    def write(self, entry: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Add an epoch: its entry in the log, and its scalars."""

    def close(self) -> None:
        """Training of the run has ended or was interrupted."""


OpenTracker = Callable[[Job], Tracker]


class TrackerCallback(Callback):
    """A callback that adds the epochs of a run to a tracker, each once, also if the run is resumed.

    A failing tracker is reported and disabled; it does not end the training.
    """

    def __init__(self, job: Job, show: OpenTracker) -> None:
        self._run, self._show, self._job = RunFolder(job.folder), show, job
        self._tracker: Tracker | None = None
        self._failed = False

    def finished_epoch(self, entry: Mapping[str, Any]) -> None:
        """Add the epoch, after those that the tracker does not have yet."""
        if self._failed:
            return
        try:
            self._add(entry)
        except Exception as error:
            self._failed = True
            log.warning("A tracker failed and is disabled; training goes on. %s", error)

    @property
    def over(self) -> bool:
        """Whether the tracker is open and its run is finished."""
        return self._tracker is not None and self._run.result_file.exists()

    def close(self) -> None:
        """Training of the run has ended or was interrupted."""
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
    """Creates the callbacks of runs for one program; leaving the context closes all trackers."""

    def __init__(self, show: OpenTracker) -> None:
        self._show, self._all = show, list[TrackerCallback]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._all:
            each.close()

    def callback(self, job: Job) -> TrackerCallback:
        """The callback of a run."""
        self._all.append(TrackerCallback(job, self._open))
        return self._all[-1]

    def _open(self, job: Job) -> Tracker:
        for each in self._all:  # a sweep has hundreds of runs and trains a few at a time
            if each.over:
                each.close()
        return self._show(job)

"""`Callback`: who is told how a run goes, in this process or by what it writes elsewhere."""

from collections.abc import Sequence
from typing import Protocol

from hypersparse.sparsifier import Sparsifier
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry


class Callback(Protocol):
    """Who is told how a run goes."""

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Training begins, or goes on after these epochs."""

    def stepped(self, step: int) -> None:
        """A step of the current epoch is done."""

    def finished_epoch(self, entry: Entry) -> None:
        """An epoch is done; this is its line in the log."""


class NullCallback:
    """Nobody is told."""

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Say nothing."""

    def stepped(self, step: int) -> None:
        """Say nothing."""

    def finished_epoch(self, entry: Entry) -> None:
        """Say nothing."""


class CallbackList:
    """Tells several watchers, in their order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Tell all."""
        for callback in self._callbacks:
            callback.started(sparsifier, entries, steps)

    def stepped(self, step: int) -> None:
        """Tell all."""
        for callback in self._callbacks:
            callback.stepped(step)

    def finished_epoch(self, entry: Entry) -> None:
        """Tell all."""
        for callback in self._callbacks:
            callback.finished_epoch(entry)


class LogReader:
    """Tells a watcher about a run that another process trains, by the epochs that appear in its log.

    An epoch that is trained again after a crash is not told again.
    """

    def __init__(self, run: RunFolder, callback: Callback | None) -> None:
        self._run, self._callback = run, callback
        self.told = len(run.log())

    def tell(self) -> None:
        """Tell what is new since the last time."""
        entries = self._run.log()
        for entry in entries[self.told :]:
            if self._callback:
                self._callback.finished_epoch(entry)
        self.told = max(self.told, len(entries))

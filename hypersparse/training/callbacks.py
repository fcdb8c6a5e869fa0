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

    def __init__(self, watchers: Sequence[Callback]) -> None:
        self._watchers = watchers

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Tell all."""
        for watcher in self._watchers:
            watcher.started(sparsifier, entries, steps)

    def stepped(self, step: int) -> None:
        """Tell all."""
        for watcher in self._watchers:
            watcher.stepped(step)

    def finished_epoch(self, entry: Entry) -> None:
        """Tell all."""
        for watcher in self._watchers:
            watcher.finished_epoch(entry)


class LogReader:
    """Tells a watcher about a run that another process trains, by the epochs that appear in its log.

    An epoch that is trained again after a crash is not told again.
    """

    def __init__(self, run: RunFolder, watcher: Callback | None) -> None:
        self._run, self._watcher = run, watcher
        self.told = len(run.log())

    def tell(self) -> None:
        """Tell what is new since the last time."""
        entries = self._run.log()
        for entry in entries[self.told :]:
            if self._watcher:
                self._watcher.finished_epoch(entry)
        self.told = max(self.told, len(entries))

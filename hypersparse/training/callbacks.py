"""`Callback`: receives the progress of a run, in this process or from the log of another one."""

from collections.abc import Sequence

from hypersparse.sparsifier import Sparsifier
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry


class Callback:
    """Receives the progress of a run. Each method does nothing until a subclass defines it."""

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Training starts, or resumes after these epochs."""

    def stepped(self, step: int) -> None:
        """A step of the current epoch is done."""

    def finished_epoch(self, entry: Entry) -> None:
        """An epoch is done; `entry` is its line in the log."""


class CallbackList(Callback):
    """Calls several callbacks in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        for callback in self._callbacks:
            callback.started(sparsifier, entries, steps)

    def stepped(self, step: int) -> None:
        for callback in self._callbacks:
            callback.stepped(step)

    def finished_epoch(self, entry: Entry) -> None:
        for callback in self._callbacks:
            callback.finished_epoch(entry)


class LogReader:
    """Calls a callback for each new epoch in the log of a run that another process trains.

    An epoch that is trained again after a crash is reported once.
    """

    def __init__(self, run: RunFolder, callback: Callback | None) -> None:
        self._run, self._callback = run, callback
        self.told = len(run.log())

    def tell(self) -> None:
        """Report the new epochs."""
        entries = self._run.log()
        for entry in entries[self.told :]:
            if self._callback:
                self._callback.finished_epoch(entry)
        self.told = max(self.told, len(entries))

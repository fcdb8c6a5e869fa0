"""`Watcher`: who is told how a run goes."""

from collections.abc import Sequence
from typing import Any, Protocol

from hypersparse.sparsifier import Sparsifier


class Watcher(Protocol):
    """Who is told how a run goes."""

    def started(self, sparsifier: Sparsifier, entries: Sequence[dict[str, Any]], steps: int) -> None:
        """Training begins, or goes on after these epochs."""

    def stepped(self, step: int) -> None:
        """A step of the current epoch is done."""

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        """An epoch is done; this is its line in the log."""


class Silent:
    """Nobody is told."""

    def started(self, sparsifier: Sparsifier, entries: Sequence[dict[str, Any]], steps: int) -> None:
        """Say nothing."""

    def stepped(self, step: int) -> None:
        """Say nothing."""

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        """Say nothing."""

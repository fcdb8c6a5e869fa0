"""Stop requests, and the exception of a stopped run."""

import time


class Stopped(Exception):  # noqa: N818  # not an error: the run can be resumed
    """The run was stopped on request; its state is saved."""


class StopRequest:
    """A request to stop, which is checked after every step."""

    def __init__(self, after_seconds: float | None = None) -> None:
        self._deadline = None if after_seconds is None else time.monotonic() + after_seconds
        self.reason: str | None = None

    def stop(self, reason: str) -> None:
        """Request a stop after this step."""
        self.reason = self.reason or reason

    def requested(self) -> bool:
        """Whether a stop was requested."""
        if self.reason is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self.reason = "the given time is over"
        return self.reason is not None

"""How a run is asked to stop, and how it says that it did."""

import time


class Stopped(Exception):  # noqa: N818  # not an error: the run can go on
    """The run was stopped on request; everything is saved."""


class StopRequest:
    """Asked after every step: should the run stop now, and why?"""

    def __init__(self, after_seconds: float | None = None) -> None:
        self._deadline = None if after_seconds is None else time.monotonic() + after_seconds
        self.reason: str | None = None

    def stop(self, reason: str) -> None:
        """Ask the run to stop after this step."""
        self.reason = self.reason or reason

    def requested(self) -> bool:
        """Whether to stop now."""
        if self.reason is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self.reason = "the given time is over"
        return self.reason is not None

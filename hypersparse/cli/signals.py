"""What Ctrl-C and a batch system's SIGTERM do."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from hypersparse.training.stop import StopRequest


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Ctrl-C and SIGTERM finish the step and save; a second one ends at once."""

    def handler(number: int, _frame: object) -> None:
        stop.stop(signal.Signals(number).name)
        signal.signal(number, before[number])

    before = {int(number): signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def exit_if_signalled(stop: StopRequest) -> None:
    """End with the code a shell expects of a program that a signal has ended."""
    codes = {"SIGINT": 130, "SIGTERM": 143}
    if stop.reason in codes:
        raise typer.Exit(codes[stop.reason])

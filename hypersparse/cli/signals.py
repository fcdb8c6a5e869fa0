"""What Ctrl-C, a batch system's SIGTERM and the SIGHUP of a closed terminal do."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from hypersparse.training.stop import StopRequest

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP finish the step and save; a second one ends at once. `nohup` keeps SIGHUP away."""

    def handler(number: int, _frame: object) -> None:
        stop.stop(signal.Signals(number).name)
        signal.signal(number, before[number])

    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    before = {int(number): signal.signal(number, handler) for number in STOPPING if number not in ignored}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def exit_if_signalled(stop: StopRequest) -> None:
    """End with the code a shell expects of a program that a signal has ended."""
    codes = {number.name: 128 + number for number in STOPPING}
    if stop.reason in codes:
        raise typer.Exit(codes[stop.reason])

"""Ctrl-C, SIGTERM of a batch system, and SIGHUP of a closed terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from hypersparse.training.stop import StopRequest

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """The first signal finishes the step and saves, the second one ends at once. `nohup` disables SIGHUP."""

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
    """End with 128 + n after signal n, as shells expect."""
    codes = {number.name: 128 + number for number in STOPPING}
    if stop.reason in codes:
        raise typer.Exit(codes[stop.reason])

"""The terminal during the training of one run."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hypersparse.cli.console import Console, table
from hypersparse.cli.formats import duration, percent
from hypersparse.methods.base import Phase
from hypersparse.plurals import how_many
from hypersparse.runs.time_left import seconds_left
from hypersparse.sparsifier import Sparsifier
from hypersparse.storage.schemas import Entry, number_of
from hypersparse.training.callbacks import Callback

METRICS = ("loss", "dense", "pruned", "best pruned", "test", "penalty", "kept")


class TerminalView(Callback, ABC):
    """A live view on a terminal; plain lines if the output is not a terminal."""

    def __init__(self, console: Console, *, per_second: int) -> None:
        self.console, self.plain, self._per_second = console, not console.is_terminal, per_second
        self._live: Live | None = None

    @abstractmethod
    def render(self) -> RenderableType:
        """The current content."""

    def __enter__(self) -> Self:
        if not self.plain:  # created here, not in __init__: it renders at once
            settings: dict[str, Any] = {"refresh_per_second": self._per_second, "transient": True}
            self._live = Live(console=self.console, get_renderable=self.render, **settings)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


class LiveDisplay(TerminalView):
    """A live panel on a terminal; one line per epoch otherwise."""

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, per_second=8)
        self.title = title
        self.plan: list[Phase] = []
        self.entries: list[Entry] = []
        self.step, self.steps = 0, 1
        self.epoch_began = time.monotonic()
        self.sparsifier: Sparsifier | None = None

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Training begins, or resumes after these epochs."""
        self.sparsifier, self.plan, self.steps = sparsifier, sparsifier.plan, steps
        self.entries = list(entries)
        if self.entries:
            self.console.say(f"going on after epoch {self.entries[-1]['epoch']}")
        if self.plain:
            self.console.say(self.title)

    def stepped(self, step: int) -> None:
        self.step = step

    def finished_epoch(self, entry: Entry) -> None:
        """An epoch is done."""
        self.entries.append(entry)
        self.step, self.epoch_began = 0, time.monotonic()
        if self.plain:
            self.console.say(f"{epoch_line(entry)}  left {self.time_left()}")

    def render(self) -> RenderableType:
        """The phases, the metrics of the last epoch, and the time left."""
        phases = Table(box=None, pad_edge=False, show_header=False)
        for phase in self.plan:
            done = self._done(phase)
            running = self.sparsifier is not None and self.sparsifier.phase is phase
            share = done + (self.step / self.steps if running else 0.0)
            over = done > 0 and not running
            total = done if over else phase.epochs
            most = how_many(total, "epoch")
            bound = most if over else f"{done} of {'at most ' if phase.stop_when else ''}{most}"
            name = Text(phase.name, style="bold" if running else "dim")
            phases.add_row(name, ProgressBar(total=max(total, 1), completed=share, width=30), bound)
        values = table(*METRICS, rows=[[*metrics(entry).values()] for entry in self.entries[-1:]])
        spent = sum(entry["seconds"] for entry in self.entries) + time.monotonic() - self.epoch_began
        clock = Text(f"{spent:.0f} s so far, time left: {self.time_left()}", style="dim")
        return Group(Text(self.title, style="bold cyan"), phases, values, clock)

    def time_left(self) -> str:
        """The expected remaining time, or a lower bound if the length of a phase is open."""
        if not self.entries or self.sparsifier is None:
            return "not known yet"
        seconds, is_bound = seconds_left(self.plan, self.sparsifier.phase, self.entries)
        if is_bound and not seconds:  # of the last phase
            return "not known yet"
        return f"{'at least ' if is_bound else ''}{duration(seconds)}"

    def _done(self, phase: Phase) -> int:
        return sum(entry["phase"] == phase.name for entry in self.entries)


def metrics(entry: Entry) -> dict[str, str]:
    """The metrics of an epoch, by name; empty if unknown."""

    def share(name: str) -> str:
        return "" if (value := number_of(entry, name)) is None else f"{percent(value)} %"

    sparse = entry["stage"] == "sparse"
    return {
        "loss": f"{entry['loss']:.4f}",
        "dense": "" if sparse else share("dense_score") or share("train_accuracy"),
        "pruned": share("train_accuracy") if sparse else share("pruned_score"),
        "best pruned": share("best_score"),
        "test": share("test_accuracy"),
        "penalty": f"{entry['strength']:.3g}" if "strength" in entry else "",
        "kept": f"{entry['kept']}",
    }


def epoch_line(entry: Entry) -> str:
    """The phase, the epoch and its metrics on one line."""
    shown = "  ".join(f"{name} {value}" for name, value in metrics(entry).items() if value)
    return f"{entry['phase']:10s} epoch {entry['epoch']:3d}  {shown}"

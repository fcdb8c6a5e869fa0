"""What a person sees while a run goes on, and at its end."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hypersparse.cli.console import Console
from hypersparse.cli.formats import duration
from hypersparse.methods.base import Phase
from hypersparse.sparsifier import Sparsifier
from hypersparse.storage.schemas import Entry, Result, number_of

METRICS = ("loss", "dense", "pruned", "best pruned", "test", "penalty", "kept")


class TerminalView(ABC):
    """Something that is drawn again and again on a terminal, and says lines where the output goes elsewhere."""

    def __init__(self, console: Console, *, per_second: int) -> None:
        self.console, self.plain, self._per_second = console, not console.is_terminal, per_second
        self._live: Live | None = None

    @abstractmethod
    def render(self) -> RenderableType:
        """How it looks now."""

    def __enter__(self) -> Self:
        if not self.plain:  # made here, not in __init__: it asks for the first picture at once
            self._live = Live(
                console=self.console, refresh_per_second=self._per_second, get_renderable=self.render, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


class LiveDisplay(TerminalView):
    """A live panel on a terminal; one line an epoch where the output goes elsewhere."""

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, per_second=8)
        self.title = title
        self.plan: list[Phase] = []
        self.entries: list[Entry] = []
        self.step, self.steps = 0, 1
        self.epoch_began = time.monotonic()
        self.sparsifier: Sparsifier | None = None

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Training begins, or goes on after these epochs."""
        self.sparsifier, self.plan, self.steps = sparsifier, sparsifier.plan, steps
        self.entries = list(entries)
        if self.entries:
            self.console.print(f"going on after epoch {self.entries[-1]['epoch']}", highlight=False)
        if self.plain:
            self.console.print(self.title, highlight=False)

    def stepped(self, step: int) -> None:
        """A step of the current epoch is done."""
        self.step = step

    def finished_epoch(self, entry: Entry) -> None:
        """An epoch is done."""
        self.entries.append(entry)
        self.step, self.epoch_began = 0, time.monotonic()
        if self.plain:
            shown = "  ".join(f"{name} {value}" for name, value in metrics(entry).items() if value)
            epoch = f"{entry['phase']:10s} epoch {entry['epoch']:3d}"
            self.console.print(f"{epoch}  {shown}  left {self.time_left()}", highlight=False, soft_wrap=True)

    def render(self) -> RenderableType:
        """The panel now."""
        phases = Table(box=None, pad_edge=False, show_header=False)
        for phase in self.plan:
            done = sum(entry["phase"] == phase.name for entry in self.entries)
            running = self.sparsifier is not None and self.sparsifier.phase is phase
            share = done + (self.step / self.steps if running else 0.0)
            over = done > 0 and not running
            total = done if over else phase.epochs
            bound = f"{done}" if over else f"{done} of {'at most ' if phase.stop_when else ''}{phase.epochs}"
            name = Text(phase.name, style="bold" if running else "dim")
            phases.add_row(name, ProgressBar(total=max(total, 1), completed=share, width=30), f"{bound} epochs")
        values = Table(*METRICS, box=None, pad_edge=False, header_style="dim")
        for entry in self.entries[-1:]:
            values.add_row(*metrics(entry).values())
        spent = sum(entry["seconds"] for entry in self.entries) + time.monotonic() - self.epoch_began
        clock = Text(f"{spent:.0f} s so far, time left: {self.time_left()}", style="dim")
        return Group(Text(self.title, style="bold cyan"), phases, values, clock)

    def time_left(self) -> str:
        """The seconds still to go, at least where a phase's end is not known yet."""
        if not self.entries:
            return "not known yet"
        recent = self.entries[-10:]
        per_epoch = sum(entry["seconds"] for entry in recent) / len(recent)
        left, open_end = 0, False
        for phase in self.plan:
            done = sum(entry["phase"] == phase.name for entry in self.entries)
            ended = self.sparsifier is not None and self.plan.index(phase) < self.plan.index(self.sparsifier.phase)
            if ended:
                continue
            if phase.stop_when:
                open_end = True
            else:
                left += phase.epochs - done
        return f"{'at least ' if open_end else ''}{duration(left * per_epoch)}"


def metrics(entry: Entry) -> dict[str, str]:
    """The numbers worth seeing of an epoch, by name; empty where there is none."""

    def percent(name: str) -> str:
        return "" if (share := number_of(entry, name)) is None else f"{100 * share:.2f} %"

    sparse = entry["stage"] == "sparse"
    train = percent("dense_score") or percent("train_accuracy")
    strength = f"{entry['strength']:.3g}" if "strength" in entry else ""
    return {
        "loss": f"{entry['loss']:.4f}",
        "dense": "" if sparse else train,
        "pruned": percent("train_accuracy") if sparse else percent("pruned_score"),
        "best pruned": percent("best_score"),
        "test": percent("test_accuracy"),
        "penalty": strength,
        "kept": f"{entry['kept']}",
    }


def result_table(result: Result) -> Table:
    """Dense against sparse: accuracy of the last and the best epoch, weights, those of use, bytes."""
    ended = result["sparse"] or result["dense"]
    picked = ended["best_picked_on"] if ended else "test"
    table = Table("", "last epoch", f"best (on {picked})", "weights", "of", "bytes", box=None, pad_edge=False)
    if (effective := result.get("effective_kept")) is not None:
        table.caption = f"effective: {effective:,} of {result['kept']:,} weights lie on a path from input to output"
        table.caption_justify = "left"
    for name in ("dense", "sparse"):
        part = result[name]
        if part is None:
            continue
        kept = result["kept"] if name == "sparse" else result["total"]
        size = result["final_bytes"] if name == "sparse" else result["dense_bytes"]
        table.add_row(
            f"{name} ({part['phase']})",
            f"{100 * part['last']:.2f} %",
            f"{100 * part['best']:.2f} % (epoch {part['best_epoch']})",
            f"{kept:,}",
            f"{result['total']:,}",
            f"{size:,}",
        )
    return table

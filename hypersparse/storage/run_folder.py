"""`RunFolder`: the files of one run, and the lock that excludes a second process."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypersparse.errors import OptionError, RunError
from hypersparse.plurals import how_many
from hypersparse.recipe import Recipe, parse_toml
from hypersparse.storage.checkpoint import CHECKPOINTS, load_outline
from hypersparse.storage.files import make_folder, remove_leftovers, to_json, write_json, write_text, writing
from hypersparse.storage.history import History
from hypersparse.storage.lock import RunLock
from hypersparse.storage.schemas import (
    MOST_LOG_BYTES,
    Entry,
    Epochs,
    Result,
    RunTables,
    Tables,
    Times,
    Timing,
    checked,
    damaged,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)

TIMES = Times.__annotations__.keys()


class RunFolder:
    """One recipe and seed on disk. `result.json` is written last and marks the run as finished."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe_file = self.path / "recipe.toml"
        self.log_file = self.path / "log.jsonl"
        self.timing_file = self.path / "timing.jsonl"  # separate, so that equal runs have equal logs
        self.checkpoint_file, self.previous_file = (self.path / name for name in CHECKPOINTS)
        self.state_file = self.path / "state.json"
        self.final_file = self.path / "final.safetensors"
        self.record_file = self.path / "record.npz"
        self.result_file = self.path / "result.json"
        self.failure_file = self.path / "failed.txt"  # the reason of the last failure
        self.history = History(self.path / "history")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and hold its lock, which also ends with the process."""
        make_folder(self.path)
        self._lock = RunLock(self.path)
        try:
            for folder in (self.path, self.history.folder):
                remove_leftovers(folder, alone=True)
            yield
        finally:
            self._lock.close()

    def check_lock(self) -> None:
        """Raise an error if the lock file was replaced; call it inside `locked`."""
        self._lock.check()

    def check(self, recipe: Recipe, seed: int) -> None:
        """Raise an error if the folder holds a run of another recipe or seed."""
        if not self.recipe_file.exists():
            return
        if differences := self.recipe().differences(recipe):
            raise RunError(
                f"{self.path} holds a run of another recipe; they differ in {', '.join(differences[:3])} "
                "(there / asked for). Use another folder."
            )
        if (there := self.seed()) != seed:
            raise RunError(f"{self.path} holds a run with seed {there}, not {seed}. Use another folder.")

    def write_recipe(self, recipe: Recipe, seed: int) -> None:
        """Write the recipe and the seed. Only the phase after which the run ends may change later."""
        write_text(self.recipe_file, f"seed = {seed}\n{recipe.to_toml()}")

    def recipe(self, *, own_code: Collection[str] = ()) -> Recipe:
        """The recipe of this run. User code that it names is imported only if it is in `own_code`."""
        try:
            return Recipe.from_mapping(self.tables(), own_code=own_code, stored=True)
        except OptionError as error:
            raise RunError(f"The recipe in {self.path} cannot be used: {error}") from None

    def tables(self) -> Tables:
        """The recipe as tables, for a run whose method cannot be imported."""
        tables: dict[str, Any] = {**self._recipe_file()}
        del tables["seed"]
        return checked(tables, Tables, self.recipe_file)

    def recipe_text(self) -> str:
        """The text of `recipe.toml`."""
        if not self.recipe_file.exists():
            raise RunError(f"{self.path} is not a run folder: it has no recipe.toml.")
        return read_text(self.recipe_file)

    def seed(self) -> int:
        """The seed of this run."""
        return self._recipe_file()["seed"]

    def _recipe_file(self) -> RunTables:
        try:
            return checked(parse_toml(self.recipe_text(), str(self.recipe_file)), RunTables, self.recipe_file)
        except OptionError as error:
            raise RunError(f"The recipe in {self.path} cannot be used: {error}") from None

    def result(self) -> Result | None:
        """The result, or None while the run is not finished."""
        if not self.result_file.exists():
            return None
        advice = "Delete it and run again to rebuild it."
        found = read_json(self.result_file, Epochs, advice)
        timing = self.timing()[: sum(found["epochs"].values())]
        if Counter(each["phase"] for each in timing) != Counter(found["epochs"]):
            raise damaged(self.timing_file, "its epochs are not those of the result")
        result = checked({**found, **times_of(timing)}, Result, self.result_file, advice)
        if result["epochs_total"] != len(timing):
            raise damaged(self.result_file, "`epochs` do not add up to `epochs_total`", advice)
        if result["total_by_layer"].keys() != result["kept_by_layer"].keys():
            raise damaged(self.result_file, "`kept_by_layer` and `total_by_layer` have other layers", advice)
        return result

    def write_result(self, result: Result) -> None:
        """Write the result, which marks the run as finished; times are in `timing.jsonl`."""
        write_json(self.result_file, {name: value for name, value in result.items() if name not in TIMES})
        self.failure_file.unlink(missing_ok=True)

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint; after a kill it may be the previous one only."""
        return self.checkpoint_file.exists() or self.previous_file.exists()

    def whole_checkpoint(self) -> Path | None:
        """The newest checkpoint that is not damaged, or None without a checkpoint; an error if all are damaged."""
        damage = None
        for path in (self.checkpoint_file, self.previous_file):
            if not path.exists():
                continue
            try:
                load_outline(path)
            except RunError as error:
                damage = damage or error
                continue
            return path
        if damage:
            raise damage
        return None

    def delete_checkpoints(self) -> None:
        """Delete the files that only an unfinished run needs."""
        for file in (self.checkpoint_file, self.previous_file, self.state_file):
            file.unlink(missing_ok=True)
        self.history.delete()

    def log(self) -> list[Entry]:
        """One entry per epoch; a last line that a kill truncated is left out."""
        lines, timing = _lines(self.log_file), self.timing()
        if len(lines) > len(timing):
            raise damaged(self.timing_file, f"it has {how_many(len(timing), 'epoch')} of {len(lines)}")
        entries: list[Entry] = []
        for line, time in zip(lines, timing, strict=False):
            said = line if isinstance(line, dict) else {}
            if (said.get("epoch"), said.get("phase")) != (time["epoch"], time["phase"]):
                raise damaged(
                    self.log_file, f"its line {len(entries) + 1} is not of the epoch in {self.timing_file.name}"
                )
            entries.append(checked({**said, **time}, Entry, self.log_file))
        return entries

    def timing(self) -> list[Timing]:
        """Times of the epochs; after a kill there may be one more than in the log."""
        return [checked(line, Timing, self.timing_file) for line in _lines(self.timing_file)]

    def whole_log(self) -> list[Entry]:
        """The log of a finished run; raises an error if epochs are missing."""
        entries, result = self.log(), self.result()
        counted = result["epochs_total"] if result else 0
        if len(entries) < counted:
            raise RunError(
                f"{self.log_file} has {how_many(len(entries), 'epoch')} of {counted}: it is cut off. Copy it again."
            )
        return entries

    def cut_log(self, entries: int) -> list[Entry]:
        """Delete the epochs after a checkpoint from the log and the history; they will be trained again."""
        self.history.cut(entries)
        kept = self.log()[:entries]
        if len(kept) < entries:
            raise RunError(
                f"{self.log_file} has {how_many(len(kept), 'epoch')} but the checkpoint has {entries}; it was altered."
            )
        for place, file in enumerate((self.log_file, self.timing_file)):
            write_text(file, "".join(_split(entry)[place] for entry in kept))
        return kept

    def append_log(self, entry: Entry) -> None:
        """Append an epoch. Its time is written first."""
        line, time = _split(entry)
        for file, text in ((self.timing_file, time), (self.log_file, line)):
            with writing(file), file.open("a") as stream:
                stream.write(text)


def times_of(entries: Sequence[Timing | Entry]) -> Times:
    """Total times of epochs, including those that an earlier run trained."""
    phases = dict.fromkeys(entry["phase"] for entry in entries)
    return {
        "wall_seconds": _total(entries),
        "shared_seconds": _total([entry for entry in entries if entry.get("shared")]),
        "wall_seconds_by_phase": {name: _total([each for each in entries if each["phase"] == name]) for name in phases},
    }


def _total(entries: Sequence[Timing | Entry]) -> float:
    return math.fsum(entry["seconds"] for entry in entries)  # the same in every version of Python


def _split(entry: Entry) -> tuple[str, str]:
    """The lines of an epoch in the log and in the times."""
    said = {name: value for name, value in entry.items() if name not in ("seconds", "shared")}
    time = {name: entry.get(name) for name in ("epoch", "phase", "seconds", "shared") if name in entry}
    return to_json(said) + "\n", to_json(time) + "\n"


def _lines(file: Path) -> list[Any]:
    """The lines of a file that training appends to, without a truncated last line."""
    if not file.exists():
        return []
    *whole, _cut = read_bytes(file, MOST_LOG_BYTES).split(b"\n")
    return [parse_json(line, file) for line in whole]

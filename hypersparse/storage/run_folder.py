"""`RunFolder`: the files of one run, their names, and the lock that keeps a second process out."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypersparse.errors import OptionError, RunError
from hypersparse.recipe import Recipe, parse_toml
from hypersparse.storage.checkpoint import CHECKPOINTS, load_outline
from hypersparse.storage.files import make_folder, remove_leftovers, write_json, write_text, writing
from hypersparse.storage.history import History
from hypersparse.storage.lock import RunLock

PARTS = ("data", "model", "training", "method")  # of a recipe.toml, which leaves nothing unsaid


class RunFolder:
    """One recipe and seed on disk. `result.json` is written last: it means finished."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe_file = self.path / "recipe.toml"
        self.log_file = self.path / "log.jsonl"
        self.checkpoint_file, self.previous_file = (self.path / name for name in CHECKPOINTS)
        self.state_file = self.path / "state.json"
        self.final_file = self.path / "final.safetensors"
        self.record_file = self.path / "record.npz"
        self.result_file = self.path / "result.json"
        self.failure_file = self.path / "failed.txt"  # why the last try failed, if it did
        self.history = History(self.path / "history")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold its lock; the lock ends with the process, however that ends."""
        make_folder(self.path)
        self._lock = RunLock(self.path)
        try:
            for folder in (self.path, self.history.folder):
                remove_leftovers(folder, alone=True)
            yield
        finally:
            self._lock.close()

    def check_lock(self) -> None:
        """Say if another process may train here although the lock is held; call it inside `locked`."""
        self._lock.check()

    def check(self, recipe: Recipe, seed: int) -> None:
        """Say if the folder holds a run of another recipe or seed."""
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
        """Say what is trained here; the phase it ends after may change, nothing else."""
        write_text(self.recipe_file, f"# seed = {seed}\n{recipe.to_toml()}")

    def recipe(self, *, own_code: Collection[str] = ()) -> Recipe:
        """The recipe this run follows; of own code that it names only what is in `own_code` is imported."""
        text = self._text()
        try:
            tables = parse_toml(text, str(self.recipe_file))
            if missing := [name for name in PARTS if name not in tables]:  # its default would be another run's
                raise RunError(f"{self.recipe_file} is damaged: it has no [{missing[0]}]. Copy it again.")
            return Recipe.from_mapping(tables, own_code=own_code, stored=True)
        except OptionError as error:
            raise RunError(f"The recipe in {self.path} cannot be used: {error}") from None

    def seed(self) -> int:
        """The seed this run has."""
        first = self._text().partition("\n")[0]
        try:
            return int(first.removeprefix("# seed = "))
        except ValueError:
            raise RunError(f"{self.recipe_file} does not begin with `# seed = N`.") from None

    def result(self) -> dict[str, Any] | None:
        """What came out, or None while the run is not finished."""
        if not self.result_file.exists():
            return None
        try:
            result = _Result(json.loads(self.result_file.read_text()))
        except (ValueError, TypeError):
            raise RunError(f"{self.result_file} is damaged; delete it and run again to rebuild it.") from None
        result.file = self.result_file
        result["until"]  # every result says where it ended
        return result

    def write_result(self, result: dict[str, Any]) -> None:
        """Finish the run."""
        write_json(self.result_file, result)
        self.failure_file.unlink(missing_ok=True)

    def has_checkpoint(self) -> bool:
        """Whether training left a checkpoint; a kill may have left only the one before the newest."""
        return self.checkpoint_file.exists() or self.previous_file.exists()

    def whole_checkpoint(self) -> Path | None:
        """The newest checkpoint that is not damaged, None where there is none at all; an error if all are damaged."""
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
        """Delete what only an unfinished run needs."""
        for file in (self.checkpoint_file, self.previous_file, self.state_file):
            file.unlink(missing_ok=True)
        self.history.delete()

    def log(self) -> list[dict[str, Any]]:
        """One entry an epoch; a line cut off by a kill is left out."""
        lines = self.log_file.read_bytes().splitlines() if self.log_file.exists() else []
        entries: list[dict[str, Any]] = []
        for line in lines:
            try:
                entries.append(json.loads(line))
            except ValueError:
                break
        if not all(isinstance(entry, dict) for entry in entries):
            raise RunError(f"{self.log_file} is damaged; copy it again, or delete the folder and train the run again.")
        return entries

    def whole_log(self) -> list[dict[str, Any]]:
        """The log of a finished run; says if it lacks epochs that the result counts."""
        entries, result = self.log(), self.result()
        counted = sum(result.get("epochs", {}).values()) if result else 0
        if len(entries) < counted:
            raise RunError(f"{self.log_file} has {len(entries)} epochs of {counted}: it is cut off. Copy it again.")
        return entries

    def cut_log(self, entries: int) -> list[dict[str, Any]]:
        """Forget the epochs after a checkpoint, which will be trained again, in the history too."""
        self.history.cut(entries)
        kept = self.log()[:entries]
        if len(kept) < entries:
            raise RunError(f"{self.log_file} has {len(kept)} epochs but the checkpoint has {entries}; it was altered.")
        write_text(self.log_file, "".join(json.dumps(entry) + "\n" for entry in kept))
        return kept

    def append_log(self, entry: dict[str, Any]) -> None:
        """Add an epoch."""
        with writing(self.log_file), self.log_file.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _text(self) -> str:
        try:
            return self.recipe_file.read_text()
        except OSError:
            raise RunError(f"{self.path} is not a run folder: it has no recipe.toml.") from None
        except UnicodeDecodeError:
            raise RunError(f"{self.recipe_file} is damaged: it is not text. Copy it again.") from None


class _Result(dict[str, Any]):
    """What came out of a run; says which file lacks what somebody asks for."""

    file: Path

    def __missing__(self, key: str) -> Any:
        raise RunError(f"{self.file} has no `{key}`: it is damaged, or of another version. Copy it or train it again.")

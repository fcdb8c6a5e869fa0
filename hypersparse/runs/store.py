"""`RunStore`: all runs under one folder, as `<readable label>-<key>/seed-<n>/`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hypersparse.errors import ModelError, RunError
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder

PHASE_CACHE = ".phase_cache"  # folder beside the runs, with the ends of phases that several runs share


class RunStore:
    """Finds the folder of a recipe and seed, and lists all runs."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def folder(self, recipe: Recipe, seed: int) -> RunFolder:
        """The folder of a recipe and seed."""
        return RunFolder(self.root / recipe.label / f"seed-{seed}")

    def runs(self) -> Iterator[RunFolder]:
        """All runs, sorted by name."""
        for recipe_file in sorted(self.root.glob("*/seed-*/recipe.toml")):
            yield RunFolder(recipe_file.parent)

    def find(self, name: str) -> RunFolder:
        """Find a run by its path, or by a unique part of its label."""
        for path in (Path(name), self.root / name):
            found = [path, *path.glob("seed-*")]
            folders = [folder for folder in found if (folder / "recipe.toml").is_file()]
            if len(folders) == 1:
                return RunFolder(folders[0])
        matches = [run for run in self.runs() if name in str(run.path.relative_to(self.root))]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise RunError(f"There is no run `{name}` in {self.root}; `hypersparse runs` lists them.")
        some = ", ".join(str(run.path.relative_to(self.root)) for run in matches[:4])
        raise RunError(f"`{name}` matches {len(matches)} runs ({some}); give a longer part of the name.")

    def weights(self, given: Path) -> Path:
        """The file of trained weights: the given file, or that of a finished run by its folder or name."""
        path = given if given.exists() else self.find(str(given)).path
        if path.is_dir():
            path = RunFolder(path).final_file
        if not path.is_file():
            raise ModelError(f"There are no weights at {path}: has that run finished?")
        return path


def find_all(names: Sequence[str], store: RunStore) -> list[Path]:
    """The run folders of several names, each once and sorted: a run's folder or name, or a folder of runs."""
    found: dict[Path, Path] = {}
    for name in names:
        for path in _inside(name, store) or [store.find(name).path]:
            found.setdefault(path.resolve(), path)
    return sorted(found.values())


def _inside(name: str, store: RunStore) -> list[Path]:
    """The runs in a folder of seeds or of labels, given as a path or by its name in the store."""
    for folder in (Path(name), store.root / name):
        for pattern in ("recipe.toml", "seed-*/recipe.toml", "*/seed-*/recipe.toml"):
            if files := sorted(folder.glob(pattern)):
                return [file.parent for file in files]
    return []

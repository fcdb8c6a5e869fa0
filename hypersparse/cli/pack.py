"""`hypersparse pack` and `unpack`: carry runs between machines as files of a limited size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hypersparse.cli.console import Console
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import RunError
from hypersparse.runs.pack import pack as pack_runs
from hypersparse.runs.pack import parse_bytes, run_name
from hypersparse.runs.pack import unpack as unpack_runs
from hypersparse.runs.split_archive import INDEX, Index
from hypersparse.runs.store import RunStore
from hypersparse.storage.lock import is_locked


def pack(
    runs: Annotated[list[str], typer.Argument(help="Run folders, folders of runs, or runs by name.")],
    out: Annotated[Path, typer.Option("--out", "-o", file_okay=False, help="Folder for the pack; made if need be.")],
    max_bytes: Annotated[str, typer.Option("--max-bytes", help="Largest file, such as 15M or 64MiB.")] = "15M",
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write runs as a few files of a limited size. Runs being trained right now are left out."""
    console, size = Console(soft_wrap=True, highlight=False), parse_bytes(max_bytes)
    folders = []
    for folder in find_all(runs, RunStore(runs_dir)):
        if is_locked(folder):
            console.print(f"left out: a process is training in {folder}", markup=False)
        else:
            folders.append(folder)
    if folders and (lost := only_in(out, folders, runs_dir)):
        raise RunError(
            f"{out} has {lost[0]}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}, which is neither among these "
            f"runs nor in {runs_dir} and would be lost: `hypersparse unpack {out}` first, or pack into another folder."
        )
    written = pack_runs(folders, out, size)
    total = sum(path.stat().st_size for path in written)
    console.print(f"{len(folders)} {_runs(folders)}, {total:,} bytes, in {len(written)} files in {out}", markup=False)


def unpack(
    source: Annotated[Path, typer.Argument(help="Folder with index.json and the parts beside it.")],
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Bring packed runs into the runs folder. Nothing finished is overwritten."""
    console = Console(soft_wrap=True, highlight=False)
    placed = unpack_runs(source, runs_dir, skipped=lambda sentence: console.print(sentence, markup=False))
    for path in placed:
        console.print(f"unpacked {path}", markup=False)
    console.print(f"{len(placed)} {_runs(placed)} unpacked into {runs_dir}", markup=False)


def only_in(out: Path, folders: Sequence[Path], runs_dir: Path) -> list[str]:
    """The runs of an earlier pack that a new one of these folders would leave nowhere."""
    if not (out / INDEX).is_file():
        return []
    packed = {run_name(folder) for folder in folders}
    return [name for name in Index.read(out).runs if name not in packed and not (runs_dir / name).exists()]


def find_all(names: Sequence[str], store: RunStore) -> list[Path]:
    """The run folders meant by names: a run's folder or name, or a folder with runs in it; each once, by name."""
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


def _runs(runs: Sequence[Path]) -> str:
    return "run" if len(runs) == 1 else "runs"

"""`pack` and `unpack`: store runs in one file, to move them between machines.

A pack is a tar file of data files. Its last member is the index, with the SHA-256 of every file.
"""

import glob
import hashlib
import io
import os
import platform
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from filecmp import cmp
from pathlib import Path, PurePosixPath

from hypersparse.errors import HypersparseError, RunError
from hypersparse.plurals import how_many
from hypersparse.regular_file import open_regular
from hypersparse.storage.files import is_alive, to_json, write_atomically, writing
from hypersparse.storage.lock import is_locked
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Word, read_json

REPORT = "report.html"  # not packed: `hypersparse report` creates it again
RUN_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f-\x9f]+/seed-\d+")  # without control characters
INDEX = "index.json"
AGAIN = "Copy it again, or pack the runs again."
# Data files only: none is executed, or read as settings by other programs.
SUFFIXES = (".toml", ".json", ".jsonl", ".safetensors", ".npz", ".npy", ".csv", ".txt", ".md", ".png")

Skipped = Callable[[str], None]


def pack(folders: Sequence[Path], out: Path) -> int:
    """Write runs to a new file `out`, and return its size; equal runs give equal bytes."""
    runs = _by_name(folders)
    if out.exists():
        raise RunError(f"{out} exists already; delete it, or choose another name.")
    write_atomically(out, lambda beside: _write(runs, beside))
    return out.stat().st_size


def unpack(source: Path, root: Path, *, skipped: Skipped = lambda sentence: None) -> list[Path]:
    """Extract the runs of a pack into `root`; returns the folders that are new or replaced.

    An existing run is replaced only if the packed one has more epochs and no process trains it. `skipped` receives a
    sentence about each run that is not extracted.
    """
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        _remove_scratch(root)
        with tempfile.TemporaryDirectory(prefix=f"{_scratch_prefix()}{os.getpid()}-", dir=root) as scratch:
            fresh = Path(scratch) / "new"
            names = _extract(source, fresh)
            return _place_all(names, fresh, root, skipped)


def run_name(folder: Path) -> str:
    """The name of a run in a pack: `<label>/seed-<n>`, from its folder or, elsewhere, from its recipe."""
    path = folder.resolve()
    name = f"{path.parent.name}/{path.name}"
    if RUN_NAME.fullmatch(name):
        return name
    run = RunFolder(path)
    return f"{run.recipe().label}/seed-{run.seed()}"


def run_files(folder: Path) -> list[Path]:
    """The data files of a run, sorted, relative to its folder; no locks and no temporary files."""
    relative = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in relative if _is_data(path))


def _by_name(folders: Iterable[Path]) -> dict[str, Path]:
    runs: dict[str, Path] = {}
    for folder in folders:
        if not (folder / "recipe.toml").is_file():
            raise RunError(f"{folder} is not a run folder: it has no recipe.toml.")
        if is_locked(folder):
            raise RunError(f"A process is training in {folder}; wait for it or stop it before packing.")
        name = run_name(folder)
        if runs.setdefault(name, folder).resolve() != folder.resolve():
            raise RunError(f"{runs[name]} and {folder} are both {name}; pack one of them.")
    if not runs:
        raise RunError("There are no runs to pack; name at least one.")
    return runs


def _write(runs: Mapping[str, Path], file: Path) -> None:
    digests = {}
    with tarfile.open(file, "w") as tar:
        for name, folder in sorted(runs.items()):
            for relative in run_files(folder):
                content = (folder / relative).read_bytes()
                digests[f"{name}/{relative.as_posix()}"] = hashlib.sha256(content).hexdigest()
                _add(tar, f"{name}/{relative.as_posix()}", content)
        _add(tar, INDEX, to_json(digests, indent=1).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # owner 0, time 0, mode 644
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _extract(source: Path, target: Path) -> list[str]:
    """The names of the runs in a pack, once all its files are in `target` and are what was packed."""
    target.mkdir()
    try:
        with open_regular(source) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                _check_member(member, source)
                tar.extract(member, target, set_attrs=False, filter="data")
    except FileNotFoundError:
        raise RunError(f"There is no pack {source}.") from None
    except (tarfile.TarError, OSError, ValueError) as error:
        raise RunError(f"{source} is not a whole pack ({error}). {AGAIN}") from None
    if not (target / INDEX).is_file():
        raise RunError(f"{source} is not a whole pack: its index, which is written last, is missing. {AGAIN}")
    digests = read_json(target / INDEX, dict[Word, Word], AGAIN)
    found = {path.relative_to(target).as_posix(): path for path in target.rglob("*") if path.is_file()}
    del found[INDEX]
    if differing := sorted(digests.keys() ^ found.keys()):
        raise RunError(f"{source} is not a whole pack: {differing[0]} is not in both file and {INDEX}. {AGAIN}")
    for name, path in found.items():
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digests[name]:
                raise RunError(f"{name} in {source} was altered: its SHA-256 is not the one in {INDEX}. {AGAIN}")
    return sorted({"/".join(name.split("/")[:2]) for name in found})


def _check_member(member: tarfile.TarInfo, source: Path) -> None:
    path = PurePosixPath(member.name)
    in_run = len(path.parts) > 2 and RUN_NAME.fullmatch("/".join(path.parts[:2])) and _is_data(path)
    if not ((in_run or member.name == INDEX) and member.isreg() and not member.issparse()):
        raise RunError(f"{source} holds {member.name!r}, which is not a file of a run. Nothing was unpacked.")


def _place_all(names: Sequence[str], fresh: Path, root: Path, skipped: Skipped) -> list[Path]:
    placed = []
    for name in names:
        target = root / name
        if reason := _reason_to_keep(target, fresh / name):
            skipped(f"{target} {reason}.")
            continue
        try:
            _place(fresh / name, target, backup=fresh.with_name("old") / name)
        except RunError as error:  # training has just begun there
            skipped(str(error))
            continue
        placed.append(target)
    return placed


def _place(new: Path, target: Path, *, backup: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        new.rename(target)
        return
    with RunFolder(target).locked():
        backup.parent.mkdir(parents=True, exist_ok=True)
        target.rename(backup)
        try:
            new.rename(target)
        except BaseException:
            backup.rename(target)
            raise


def _scratch_prefix() -> str:
    return f".unpacking-{platform.node()}-"


def _remove_scratch(root: Path) -> None:
    """Clean up after killed processes of this machine: restore runs they moved, then delete their folders."""
    for folder in root.glob(f"{glob.escape(_scratch_prefix())}*-*"):
        process = folder.name.removeprefix(_scratch_prefix()).partition("-")[0]
        if not process.isdigit() or is_alive(int(process)):
            continue
        for backup in folder.glob("old/*/seed-*"):
            if not (target := root / backup.relative_to(folder / "old")).exists():
                backup.rename(target)
        shutil.rmtree(folder)


def _reason_to_keep(target: Path, new: Path) -> str | None:
    """The reason to keep the existing run, or None."""
    if not target.exists():
        return None
    if is_locked(target):
        return "is being trained by another process and was not changed"
    if _same(target, new):
        return "is already there"
    there, coming = _progress(target), _progress(new)
    if coming > there:
        return None
    if there[0] > coming[0]:
        return "is finished and the one in the pack is not; it was not changed"
    if there == coming:
        return "has as many epochs as the one in the pack but differs; it was not changed, delete it to use the other"
    return f"has {how_many(there[1], 'epoch')} and the one in the pack {coming[1]}; it was not changed"


def _progress(folder: Path) -> tuple[int, int]:
    """Progress of a run: 2 finished, 1 finished until a phase, 0 unfinished; then its epochs. (-1, 0) if damaged."""
    run = RunFolder(folder)
    try:
        result = run.result()
        rank = 0 if result is None else 2 if result["until"] is None else 1
        return rank, len(run.log())
    except HypersparseError:
        return -1, 0


def _same(there: Path, new: Path) -> bool:
    return all((there / file).is_file() and cmp(there / file, new / file, shallow=False) for file in run_files(new))


def _is_data(path: PurePosixPath | Path) -> bool:
    return path.suffix in SUFFIXES and not any(part.startswith(".") for part in path.parts)

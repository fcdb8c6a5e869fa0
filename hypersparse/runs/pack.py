"""`pack` and `unpack`: store runs in a few files of a limited size, to move them between machines."""

import glob
import io
import os
import platform
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from hypersparse.errors import HypersparseError, OptionError, RunError
from hypersparse.runs.split_archive import CHUNK, INDEX, Index, PartReader, PartWriter, clear
from hypersparse.storage.files import is_alive, writing
from hypersparse.storage.lock import is_locked
from hypersparse.storage.run_folder import RunFolder

PICTURE, REPORT = "curves.png", "report.html"  # not packed: `hypersparse show` and `report` create them again
RUN_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f-\x9f]+/seed-\d+")  # without control characters
# Data files only: none is executed, or read as settings by other programs.
SUFFIXES = (".toml", ".json", ".jsonl", ".safetensors", ".npz", ".npy", ".csv", ".txt", ".md", ".png")
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

Skipped = Callable[[str], None]


def parse_bytes(text: str) -> int:
    """Parse a size in bytes.

    >>> parse_bytes("15M"), parse_bytes("64 KiB"), parse_bytes("1.5GB"), parse_bytes("2000")
    (15000000, 65536, 1500000000, 2000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    size = int(float(match[1]) * UNITS[match[2] or ""]) if match else 0
    if size < 1:
        raise OptionError(f"A size must be a number with k, M or G (or KiB, MiB, GiB), such as 15M; got {text!r}.")
    return size


def pack(folders: Sequence[Path], out: Path, max_bytes: int) -> list[Path]:
    """Write runs to `out` as part-000.hspack ... of at most `max_bytes` each; equal runs give equal bytes.

    An earlier pack in `out` is replaced. Returns the parts and, last, the index.
    """
    runs = _by_name(folders)
    raw = PartWriter(out, max_bytes)
    clear(out)
    with writing(out), raw, io.BufferedWriter(raw) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for name, folder in sorted(runs.items()):
            _add_run(tar, name, folder)
    index = Index(raw.parts, sorted(runs))
    index.write(out)
    return [out / part["file"] for part in index.parts] + [out / INDEX]


def only_in(out: Path, folders: Sequence[Path], runs_dir: Path) -> list[str]:
    """The runs of an earlier pack that a new one of these folders would leave nowhere."""
    if not (out / INDEX).is_file():
        return []
    packed = {run_name(folder) for folder in folders}
    return [name for name in Index.read(out).runs if name not in packed and not (runs_dir / name).exists()]


def unpack(source: Path, root: Path, *, skipped: Skipped | None = None) -> list[Path]:
    """Extract the runs of a pack into `root`; returns the folders that are new or replaced.

    An existing run is replaced only if the packed one has more epochs and no process trains it. `skipped` receives a
    sentence about each run that is not extracted.
    """
    index = Index.read(source)
    index.check(source)
    _check_run_names(index.runs, source)
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        _remove_scratch(root)
        with tempfile.TemporaryDirectory(prefix=f"{_scratch_prefix()}{os.getpid()}-", dir=root) as scratch:
            fresh = Path(scratch) / "new"
            _extract(source, index, fresh)
            return _place_all(index.runs, fresh, root, skipped or _ignore)


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
    return sorted(path for path in relative if path.name not in (PICTURE, REPORT) and _is_data(path))


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


def _add_run(tar: tarfile.TarFile, name: str, folder: Path) -> None:
    for relative in run_files(folder):
        with (folder / relative).open("rb") as file:
            member = tarfile.TarInfo(f"{name}/{relative.as_posix()}")  # owner 0, time 0, mode 644
            member.size = file.seek(0, io.SEEK_END)
            file.seek(0)
            tar.addfile(member, file)


def _check_run_names(names: Sequence[str], source: Path) -> None:
    if invalid := next((name for name in names if not RUN_NAME.fullmatch(name) or _hidden(Path(name))), None):
        raise RunError(f"{source} holds a run {invalid!r}; runs are called <label>/seed-<n>. Nothing was unpacked.")


def _extract(source: Path, index: Index, target: Path) -> None:
    target.mkdir()
    with PartReader(source, index.parts) as raw, io.BufferedReader(raw) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    _check_member(member, index.runs, source)
                    tar.extract(member, target, set_attrs=False, filter="data")
        except tarfile.TarError as error:
            raise RunError(f"The runs in {source} cannot be read ({error}); pack them again.") from None
    for name in index.runs:
        if not (target / name / "recipe.toml").is_file():
            raise RunError(f"{source} lists {name} but does not hold all of it; pack it again. Nothing was unpacked.")


def _check_member(member: tarfile.TarInfo, names: Sequence[str], source: Path) -> None:
    path = PurePosixPath(member.name)
    inside = len(path.parts) > 2 and "/".join(path.parts[:2]) in names and _is_data(path)
    if not (inside and member.isreg()):
        raise RunError(f"{source} holds {member.name!r}, which is not a file of its runs. Nothing was unpacked.")


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
    return f"has {there[1]} epochs and the one in the pack {coming[1]}; it was not changed"


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
    return all(_same_content(there / file, new / file) for file in run_files(new))


def _same_content(one: Path, other: Path) -> bool:
    if not one.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        return all(a == b for a, b in zip(_chunks(first), _chunks(second), strict=True))


def _chunks(file: io.BufferedReader) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _is_data(path: PurePosixPath | Path) -> bool:
    return path.suffix in SUFFIXES and not _hidden(path)


def _hidden(path: PurePosixPath | Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _ignore(sentence: str) -> None:
    """The default of `skipped`."""

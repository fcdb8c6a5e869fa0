"""Damages the files of runs and packs, and reads them with every command that does.

    python -m tests.fuzz.fuzz_runs --cases 10000 --seed 0

A finding is an exception that is not one of the package's own, a command that takes longer than three minutes, more
memory than a gigabyte, or a file that appears outside the folder that was meant.
"""

import argparse
import contextlib
import hashlib
import io
import json
import random
import resource
import signal
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

from torch import nn

from hypersparse.analysis.layers import layer_weights
from hypersparse.analysis.report.gather import gather
from hypersparse.cli.registry import COMMANDS, Family
from hypersparse.errors import HypersparseError
from hypersparse.recipe import merge, resolve
from hypersparse.runs.pack import INDEX, pack, unpack
from hypersparse.runs.run_listing import rows
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import failures
from hypersparse.storage.record import read_record
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import read_weights
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.resume import saved_position, take_checkpoint
from hypersparse.training.stop import Stopped, StopRequest
from tests.cli.commands import run as run_command
from tests.fuzz.damage import copy, damage
from tests.runs.tiny import TABLES
from tests.training.small import StopAfter

SECONDS, BYTES = 180, 1 << 30  # of the clock: other programs may have the cores
LABEL = "runs"
FAMILY = COMMANDS["analyze"]
ANALYSES = tuple(FAMILY.commands) if isinstance(FAMILY, Family) else ()
READERS: tuple[tuple[str, ...], ...] = (
    ("runs", "--runs-dir", LABEL, "--format", "json"),
    ("show", "{run}"),
    ("report", "{run}", "-o", "out/report.html"),
    ("paper", "accuracy", "--results", LABEL),
    ("evaluate", "{run}"),
    ("export", "{run}", "-o", "out/a.hsp"),
    ("train", "--recipe", "recipe.toml", "--seed", "{seed}", "--runs-dir", LABEL, "--stop-after", "0s", "--no-report"),
    ("pack", "{run}", "-o", "out/pack"),
    ("shrink", "{run}", "-o", "out/small.hsp", "--verify-images", "0"),
    ("serve", "{run}", "--port", "0", "--no-browser"),
    ("sweep", "sweep.toml", "--results", LABEL, "--dry-run"),
    ("sweep", "sweep.toml", *("--jobs", "1", "--device", "cpu", "--stop-after", "0s", "--no-report")),
    ("plan", "--recipe", "{run}/recipe.toml"),
    ("analyze", "{analysis}", "--runs-dir", LABEL, "-o", "out"),
)
NOT_OF_RUNS = ("compare", "find", "tune", "methods", "zoo", "doctor")  # read no run, or as `sweep` does
EXPERIMENT = """
title = "Small"
[options.data]
images = 64
test_images = 32
size = 8
channels = 1
[options.model]
width = 4
[options.training]
epochs = 2
batch_size = 32
[options.method]
pretrain_epochs = 1
max_regularized_epochs = 2
[[grid]]
data = "synthetic"
model = "resnet8"
method = "art"
sparsity = 0.95
seeds = [0, 1]
"""
PACK_READER = ("unpack", "packs/pack", "--runs-dir", LABEL)


class StopAtOnce(StopRequest):
    """Ends a server as soon as it listens."""

    def requested(self) -> bool:
        """Whether to stop now: yes."""
        self.stop("it listens")
        return True


class TooSlowError(BaseException):
    """A command hangs."""


def make_template(root: Path) -> Path:
    """A store with two finished runs and one that was stopped with a mask."""
    recipe = resolve(merge(TABLES, {"data": {"images": 64, "test_images": 32}}))
    machine, store = Machine(device="cpu", threads=1, checkpoint_seconds=0.0), RunStore(root / LABEL)
    for seed in (0, 2):
        train(recipe, seed, machine, store.folder(recipe, seed).path)
    callback = StopAfter(7)
    with contextlib.suppress(Stopped):
        train(recipe, 1, machine, store.folder(recipe, 1).path, callback=callback, stop=callback.request)
    (root / "recipe.toml").write_text(recipe.to_toml())
    (root / "sweep.toml").write_text(EXPERIMENT)
    (root / "packs").mkdir()
    pack([run.path for run in store.runs()], root / "packs" / "pack")
    return root


def case(template: Path, root: Path, number: int, seed: int, *, commands: bool = True) -> tuple[str, str] | None:
    """One damage and what reads it, a command or the functions behind them; the finding, if there is one."""
    chance = random.Random(f"{seed} {number}")
    folder = copy(template, root / "case")
    packed = chance.random() < 0.25
    if packed:
        done = (
            damage_pack(folder / "packs" / "pack", chance)
            if chance.random() < 0.7
            else damage(folder / "packs", chance)
        )
    else:
        done = ", ".join(damage(folder / LABEL, chance) for _ in range(chance.choice((1, 1, 2))))
    command = PACK_READER if packed else chance.choice(READERS)
    outside = {path.name for path in root.iterdir()}
    which = chance.randrange(2)
    words = {"run": next(iter(sorted((folder / LABEL).glob(f"*/seed-{which}"))), folder / LABEL), "seed": which}
    typed = [word.format(**words, analysis=chance.choice(ANALYSES)) for word in command]
    if problem := attempt(typed if commands else (), folder):
        return f"{' '.join(typed)} after {done}", problem
    if {path.name for path in root.iterdir()} != outside or Path("/tmp/outside").exists():
        return f"{' '.join(typed)} after {done}", "a file outside the folder"
    return None


def attempt(command: Sequence[str], folder: Path) -> str | None:
    """Run a command; what is wrong with how it ended, if anything."""
    (folder / "out").mkdir(exist_ok=True)
    signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        if not command:
            read_all(folder)
            return None
        done = start(command, folder)
    except TooSlowError:
        return f"took more than {SECONDS} s"
    except HypersparseError:
        return None
    except Exception:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None if done.returncode in (0, 1, 2) else f"exit code {done.returncode}: {done.stderr[-500:]}"


def start(command: Sequence[str], folder: Path) -> CompletedProcess[str]:
    """A command until it ends; a server ends once it listens."""
    with mock.patch("hypersparse.cli.serve.StopRequest", StopAtOnce):
        return run_command(*command, folder=folder)


def read_all(folder: Path) -> None:
    """Read every file of the runs, and the pack, by the functions behind the commands."""
    store = RunStore(folder / LABEL)
    rows(store)
    gather(list(store.runs()))
    failures(store)
    readers: list[Callable[[RunFolder], object]] = [RunFolder.recipe, RunFolder.seed, RunFolder.result]
    readers += [RunFolder.whole_log, layer_weights, saved_position, take_checkpoint, lambda run: read_record(run.path)]
    readers += [lambda run: read_weights(run.final_file, nn.Linear(1, 1)), lambda run: run.history.read(0)]
    for run in store.runs():
        for reader in readers:
            with contextlib.suppress(HypersparseError):
                reader(run)
    with contextlib.suppress(HypersparseError):
        unpack(folder / "packs" / "pack", folder / LABEL)


def damage_pack(file: Path, chance: random.Random) -> str:
    """A pack with a whole index that holds a crafted member."""
    with tarfile.open(file) as tar:
        digests = json.load(tar.extractfile(INDEX))  # type: ignore[arg-type]
    run = chance.choice(sorted(digests)).rpartition("/")[0]
    inside = f"{run}/{chance.choice(('recipe.toml', 'x', 'a/b', '../x', '../../../outside', '.lock', ''))}"
    names = (inside, "/tmp/outside", "../outside", "..", "a\0b", "x" * 300, f"./{inside}", inside.replace("/", "\\"))
    member = tarfile.TarInfo(chance.choice((*names, *[inside] * 8)))
    kinds = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
    member.type = chance.choice((*kinds, tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE))
    member.linkname = chance.choice(("/etc/passwd", "../../outside", inside))
    content = chance.randbytes(chance.choice((0, 10, 5000)))
    member.size = chance.choice((len(content), 0, 10, 1 << 20, 1 << 40))
    member.mode = chance.choice((0o644, 0o4777, 0))
    index = json.dumps({**(digests if chance.random() < 0.3 else {}), member.name: hashlib.sha256(content).hexdigest()})
    last = tarfile.TarInfo(INDEX)
    last.size = len(index.encode())
    with tarfile.open(file, mode="w", format=chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))) as tar:
        tar.fileobj.write(member.tobuf())  # type: ignore[union-attr]
        tar.fileobj.write(content.ljust(-len(content) % 512 + len(content), b"\0"))  # type: ignore[union-attr]
        tar.addfile(last, io.BytesIO(index.encode()))
    return f"member {member.name[:40]!r} of type {member.type!r} and size {member.size}"


def limit() -> None:
    """No command may take much more memory than there is now."""
    used = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
    resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _too_slow(*_: Any) -> None:
    raise TooSlowError


def main() -> None:
    """Run many cases and print what was found, each kind once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--functions", action="store_true", help="Call functions, not commands: ten times as fast.")
    asked = parser.parse_args()
    found: Counter[str] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        template = make_template(Path(folder) / "template")
        root = Path(folder) / "root"
        root.mkdir()
        limit()
        for number in range(asked.cases):
            if finding := case(template, root, number, asked.seed, commands=not asked.functions):
                kind = "\n".join(finding[1].strip().splitlines()[-3:])
                if not found[kind]:
                    print(f"case {number}: {finding[0]}\n{finding[1]}\n", flush=True)
                found[kind] += 1
            if number % 500 == 499:
                print(
                    f"{number + 1} cases, {len(found)} kinds of findings, {time.monotonic() - began:.0f} s", flush=True
                )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

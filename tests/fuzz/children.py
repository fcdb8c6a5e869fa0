"""Cases of a fuzzer in processes of their own, so that a crash, a hang and lost memory are told apart from an error."""

import argparse
import json
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypersparse_runtime.limits import SMALL

MOST_BYTES = 2**30
MOST_RUN_SECONDS = 60
MOST_LOAD_SECONDS = 2.0  # of a file of at most SMALL bytes
CASES_PER_PROCESS = 20


class FindingError(Exception):
    """Something that must not happen."""


def check_seconds(seconds: float, size: int) -> None:
    """Refuse a slow load; larger files may take longer, as in `limits.py`."""
    if seconds > MOST_LOAD_SECONDS * max(1, size / SMALL):
        raise FindingError(f"loading {size} bytes took {seconds:.1f} s")


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    kind: str  # "refused", "ran", or "finding"
    said: str = ""


def in_child(work: Callable[[], Outcome], *, baseline: int) -> Outcome:
    """The outcome of work in a process of its own, which may take so much time and memory."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_RUN_SECONDS, MOST_RUN_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_AS, (baseline + 6 * MOST_BYTES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            warnings.simplefilter("ignore")
            outcome = work()
            taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
            if taken > MOST_BYTES:
                outcome = Outcome("finding", f"{taken / 2**20:.0f} MiB were taken")
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            where = next(
                (
                    f"{Path(frame.filename).name}:{frame.lineno}"
                    for frame in reversed(frames)
                    if "hypersparse" in frame.filename
                ),
                "",
            )
            outcome = Outcome("finding", f"{type(error).__name__} {where}: {str(error)[:300]}")
        os.write(write, json.dumps([outcome.kind, outcome.said[:1000]]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Outcome("finding", f"signal {signal.Signals(os.WTERMSIG(status)).name}")
    return Outcome(*json.loads(answer))


Step = Callable[[int, Path], Outcome]


def _alone(make: Step, attempt: Step, seed: int, path: Path, baseline: int) -> Outcome:
    """Make and try one file in processes of their own; one that is too large to be made is no case."""
    made = in_child(lambda: make(seed, path), baseline=baseline)
    if made.kind != "written":
        return Outcome("unwritten", made.said) if made.kind == "finding" else made
    return in_child(lambda: attempt(seed, path), baseline=baseline)


def run_cases(seeds: range, make: Step, attempt: Step, path: Path) -> tuple[Counter[str], list[str]]:
    """Make and try the file of each seed: many in one process, and each alone if there was a finding among them."""
    counts, findings, baseline = Counter[str](), list[str](), virtual_bytes()

    def several(some: range) -> Outcome:
        made = Counter[str]()
        for seed in some:
            outcome = make(seed, path)
            made[(outcome if outcome.kind != "written" else attempt(seed, path)).kind] += 1
        return Outcome("several", json.dumps(made))

    for start in range(seeds.start, seeds.stop, CASES_PER_PROCESS):
        some = range(start, min(start + CASES_PER_PROCESS, seeds.stop))
        outcome = in_child(lambda: several(some), baseline=baseline)  # noqa: B023
        if outcome.kind == "several":
            counts += Counter(json.loads(outcome.said))
            continue
        for seed in some:
            own = path.with_stem(f"{path.stem}-{seed}")
            outcome = _alone(make, attempt, seed, own, baseline)
            counts[outcome.kind] += 1
            if outcome.kind == "finding":
                findings.append(f"{seed}: {outcome.said}")
            else:
                shutil.rmtree(own) if own.is_dir() else own.unlink(missing_ok=True)
    return counts, findings


def run_fuzzer(fuzz: Callable[[range, Path], tuple[Counter[str], list[str]]], *, cases: int) -> None:
    """The program of a fuzzer: so many `cases` at a time, and exit code 1 if there was a finding."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    counts, found = Counter[str](), 0
    for start in range(options.seed, options.seed + options.cases, cases):
        more, findings = fuzz(range(start, min(start + cases, options.seed + options.cases)), options.keep)
        counts, found = counts + more, found + len(findings)
        print(*findings, dict(counts), sep="\n", flush=True)
    sys.exit(bool(found))


def virtual_bytes() -> int:
    """The address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE

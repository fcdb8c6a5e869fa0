"""Networks of finished runs, kept as small files while a sweep goes on."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from hypersparse import own_code as own
from hypersparse.errors import RunError
from hypersparse.recipe import own_code_of
from hypersparse.runs.experiment import Run
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import make_folder
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.stop import StopRequest
from hypersparse.zoo import FACTS

PATIENCE_SECONDS = 3600
ASKED_EVERY_SECONDS = 0.2  # whether to stop, while networks are waited for


Keep = Callable[[Path], None]
"""Told the folder of each run that finished."""


@contextmanager
def networks_kept(
    say: Callable[[str], None],
    folder: Path | None,
    data_dir: Path | None,
    runs: Sequence[Run],
    store: RunStore,
    stop: StopRequest,
) -> Iterator[Keep | None]:
    """Keep the networks of runs in a folder, those of an earlier sweep first; without a folder keep none."""
    if folder is None:
        yield None
        return
    make_folder(folder)  # before anything is trained for it
    own_code = own_code_of(run.recipe for run in runs)
    with NetworkKeeper(say, folder, data_dir, stop, own_code=own_code) as keeper:
        keeper.keep_finished(runs, store)
        yield keeper.keep


class NetworkKeeper:
    """Puts the network of each finished run into a folder as a zoo's entry, one after another beside the training.

    Each is made by a process of its own: tracing a network is not safe beside threads that compile theirs, and what
    fails there cannot harm the sweep. At the end the keeper waits for them and says what failed; where the sweep is to
    stop it waits only for the one under way.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        folder: Path,
        data_dir: Path | None,
        stop: StopRequest,
        *,
        own_code: frozenset[str] = frozenset(),
    ) -> None:
        self._say, self._folder, self._data_dir, self._stop = say, folder, data_dir, stop
        self._own_code = own_code
        self._made: dict[Path, Future[str]] = {}
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if waiting := sum(not made.done() for made in self._made.values()):
            self._say(f"{waiting} networks are still to be written to {self._folder}")
        while not self._stop.requested() and wait(self._made.values(), ASKED_EVERY_SECONDS).not_done:
            pass
        self._pool.shutdown(cancel_futures=self._stop.requested())
        if left := sum(made.cancelled() for made in self._made.values()):
            self._say(f"{left} of them are left to the next sweep")
        for run, made in self._made.items():
            if not made.cancelled() and (problem := made.result()):
                self._say(f"{name_of(run)} was not written to {self._folder}: {problem}")

    def keep_finished(self, runs: Sequence[Run], store: RunStore) -> None:
        """Those of an earlier sweep that are not there yet."""
        for run in runs:
            folder = store.folder(run.recipe, run.seed)
            if folder.final_file.is_file():
                with suppress(RunError):  # damaged; the sweep says it
                    self.keep(folder.path)

    def keep(self, run: Path) -> None:
        """Have the network of a run written, if it is a sparse one, went to its end, and is not there."""
        result = RunFolder(run).result()
        wanted = result is not None and result["until"] is None and result["sparse"] is not None
        if wanted and run not in self._made and not (self._folder / f"{name_of(run)}{FACTS}").is_file():
            self._made[run] = self._pool.submit(self._make, run)

    def _make(self, run: Path) -> str:
        """Why it failed; nothing if it did not."""
        place = ["--data-dir", str(self._data_dir)] if self._data_dir else []
        # -P: modules are not looked for in the current folder.
        command = [sys.executable, "-P", "-m", "hypersparse", "zoo"]
        command += ["--add", str(run.resolve()), "--name", name_of(run)]
        command += ["--replace", "--folder", str(self._folder), "--json", *place]
        named = own.named_in(RunFolder(run).recipe().to_mapping())
        if named and named <= self._own_code:  # what this sweep was trusted with, and no more
            command.append("--trust-code")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, start_new_session=True
            )  # in a session of its own, so that Ctrl-C ends the training and not what is being written
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        said = done.stderr.strip().splitlines()
        return (
            "" if done.returncode == 0 else said[-1].removeprefix("error: ") if said else f"exit code {done.returncode}"
        )


def name_of(run: Path) -> str:
    """The label of a run and its seed: no two runs of a sweep are called the same."""
    return f"{run.parent.name}-{run.name}"

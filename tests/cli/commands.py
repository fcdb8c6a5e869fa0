"""Commands as a user types them: in this process, which is quick, or in one of their own, which signals can reach."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import matplotlib

from hypersparse.cli import main
from hypersparse.storage.run_folder import RunFolder

QUICK = ["--data", "synthetic", "--set", "data.images=64", "--set", "data.test_images=32", "--set", "data.size=8"]
SHORT = [*QUICK, "--epochs", "1", "--set", "method.pretrain_epochs=1", "--set", "method.max_regularized_epochs=1"]
UNSET = ("HYPERSPARSE_DATA", "XDG_CACHE_HOME")


def variables(folder: Path) -> dict[str, str]:
    """A home without data; Matplotlib finds its fonts all the same, since listing them takes seconds."""
    wanted = {"COLUMNS": "200", "HOME": str(folder), "OMP_NUM_THREADS": "1", "MPLCONFIGDIR": matplotlib.get_cachedir()}
    return {name: value for name, value in os.environ.items() if name not in UNSET} | wanted


def command_of(*arguments: str) -> list[str]:
    """How a command is begun in a process of its own."""
    return [sys.executable, "-W", "ignore", "-m", "hypersparse", *arguments]


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Begin a command in a process of its own."""
    return subprocess.Popen(
        command_of(*arguments),
        cwd=folder,
        env=variables(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_alone(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, until it ends."""
    process = start(*arguments, folder=folder)
    out, err = process.communicate(timeout=240)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in this process, as an installed script would run it: the whole program but for its start."""
    out, err = io.StringIO(), io.StringIO()
    with _typed(["hypersparse", *arguments], folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main.run()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _typed(words: list[str], folder: Path) -> Iterator[None]:
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, variables(folder), clear=True),
        mock.patch.object(sys, "argv", words),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def the_run(folder: Path) -> RunFolder:
    (recipe,) = folder.glob("runs/*/seed-*/recipe.toml")
    return RunFolder(recipe.parent)

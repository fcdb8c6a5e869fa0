"""What every command says of a wrong option, and of files that are missing or none."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hypersparse.cli.registry import COMMANDS, Family
from hypersparse.runs.store import RunStore
from tests.cli.commands import QUICK, run
from tests.cli.test_sweep import EXPERIMENT
from tests.runs.tiny import FINISHED, run_of

Place = Callable[[Path], None]


def every_command() -> Iterator[str]:
    """Each command as it is typed, those of groups too."""
    for name, place in COMMANDS.items():
        yield from (f"{name} {each}" for each in place.commands) if isinstance(place, Family) else [name]


def is_one_sentence(said: str) -> bool:
    return said.startswith("error: ") and said.count("\n") == 1 and said[-2] in ".?"


@pytest.mark.parametrize("command", list(every_command()))
def test_an_unknown_option_is_one_sentence(command: str, tmp_path: Path) -> None:
    done = run(*command.split(), "--nonsense", folder=tmp_path)
    assert done.returncode == 2
    assert is_one_sentence(done.stderr), done.stderr
    assert "--nonsense" in done.stderr
    assert f"{command} --help" in done.stderr


def unreadable(path: Path) -> None:
    """A file that opens and cannot be read, whoever asks: its bytes are this process's first page."""
    path.symlink_to("/proc/self/mem")


PLACES: dict[str, Place] = {
    "missing": lambda path: None,
    "a folder": Path.mkdir,
    "unreadable": unreadable,
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage" * 9) and None,
    "empty": Path.touch,
}
ANALYSES = [command for command in every_command() if command.startswith("analyze ")]
READING = [
    "train --recipe bad.toml",
    "train --init-from bad.safetensors",
    "train --init-from bad.pt",
    "train --data bad.npz",
    "compare --data bad.npz",
    "plan art --recipe bad.toml",
    "plan art --init-from bad.pt",
    "sweep bad.toml",
    "show bad",
    "report bad",
    "report bad.toml",
    *(f"{command} bad" for command in ANALYSES),
    "evaluate bad",
    "evaluate bad.hsp",
    "evaluate bad.safetensors --data digits",
    "evaluate bad.pt --data digits --model resnet8",
    "evaluate cifar10-resnet32-0.99 --data bad.npz",
    "export bad.hsp -o out.onnx",
    "export bad -o out.onnx",
    "shrink bad.hsp",
    "shrink bad.safetensors",
    "serve bad.hsp",
    "serve bad",
    "pack bad -o packed",
    "unpack bad",
]
FINE = {  # a plan reads no weights, and an empty recipe is one of defaults
    ("train --recipe bad.toml", "empty"),
    ("plan art --recipe bad.toml", "empty"),
    ("plan art --init-from bad.pt", "empty"),
    ("plan art --init-from bad.pt", "garbage"),
}
CASES = [(typed, place) for typed in READING for place in PLACES if (typed, place) not in FINE]


@pytest.mark.parametrize(("typed", "place"), CASES)
def test_a_file_that_cannot_be_read_is_one_sentence(typed: str, place: str, tmp_path: Path) -> None:
    (bad,) = (word for word in typed.split() if word.startswith("bad"))
    PLACES[place](tmp_path / bad)
    done = run(*typed.split(), folder=tmp_path)
    assert done.returncode == 2
    assert is_one_sentence(done.stderr), done.stderr
    assert "bad" in done.stderr


WRITING = [
    f"train {' '.join(QUICK)} --runs-dir file",
    f"train {' '.join(QUICK)} --compiler-cache file",
    f"compare {' '.join(QUICK)} --out file",
    "sweep experiment.toml --results file",
    "sweep experiment.toml --runs-dir file",
    "report run -o place",
    *(f"{command} run --out file" for command in ANALYSES),
    "export cifar10-resnet32-0.99 -o place.hsp --verify-images 0",
    "shrink cifar10-resnet32-0.99 -o place.onnx --verify-images 0",
    "pack run -o file",
    "unpack packed --runs-dir file",
    "evaluate run --runs-dir file",
    "runs --runs-dir file",
    "paper --results file",
]


@pytest.mark.parametrize("typed", WRITING)
def test_a_place_that_cannot_be_written_is_one_sentence(typed: str, store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for name in ("place", "place.png", "place.hsp", "place.onnx"):
        (tmp_path / name).mkdir()
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    words = [str(run_of(store, FINISHED).path) if word == "run" else word for word in typed.split()]
    done = run(*words, folder=tmp_path)
    assert done.returncode == 2
    assert is_one_sentence(done.stderr), done.stderr
    assert "file" in done.stderr or "place" in done.stderr

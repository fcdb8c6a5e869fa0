"""Standard output that cannot be written or encoded."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hypersparse.cli import main
from hypersparse.cli.signals import stopped_by_signals
from hypersparse.training.stop import StopRequest
from tests.cli.commands import QUICK, SHORT, command_of, the_run, variables

QUIET = (
    ["methods"],
    ["methods", "--json"],
    ["zoo"],
    ["plan", "art"],
    ["runs", "--format", "json"],
    ["--help"],
    ["--version"],
)


@contextlib.contextmanager
def full() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


@contextlib.contextmanager
def closed_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


BROKEN = {"a full disk": (full, 1, "No space left on device"), "a closed pipe": (closed_pipe, 141, "")}


@pytest.mark.parametrize("arguments", QUIET, ids=" ".join)
@pytest.mark.parametrize("what", BROKEN)
def test_a_command_whose_output_is_lost_says_so(
    arguments: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened, code, reason = BROKEN[what]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hypersparse", *arguments])
    with opened() as descriptor, io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False)) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "__stdout__", stream)
        with pytest.raises(SystemExit) as ended:
            main.run()
    assert ended.value.code == code
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(said) == bool(reason)
    assert all(reason in line for line in said)


@pytest.mark.parametrize("arguments", QUIET, ids=" ".join)
def test_what_cannot_be_encoded_becomes_a_question_mark(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hypersparse", *arguments])
    file = tmp_path / "out"
    with file.open("w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "__stdout__", stream)
        with pytest.raises(SystemExit) as ended:
            main.run()
    assert ended.value.code == 0
    assert "\\u" in file.read_text("ascii") if "--json" in arguments else file.read_bytes().isascii()


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_training_goes_on_without_its_output(what: str, tmp_path: Path) -> None:
    opened, code, reason = BROKEN[what]
    with opened() as descriptor:
        done = subprocess.run(
            command_of("train", *SHORT, "--no-report"),
            cwd=tmp_path,
            env=variables(tmp_path) | {"PYTHONIOENCODING": "ascii"},
            stdout=descriptor,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == code, done.stderr
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert the_run(tmp_path).result() is not None


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_and_saves_the_run(tmp_path: Path) -> None:
    terminal, inside = os.openpty()
    script = f"import os, pty, sys; os.login_tty({inside}); os.execv(sys.argv[1], sys.argv[1:])"
    command = command_of("train", *QUICK, "--set", "method.pretrain_epochs=100000", "--no-report")
    process = subprocess.Popen(
        [sys.executable, "-c", script, *command], cwd=tmp_path, env=variables(tmp_path), pass_fds=[inside]
    )
    os.close(inside)
    while not list(tmp_path.glob("runs/*/seed-0/log.jsonl")):
        assert process.poll() is None
        os.read(terminal, 1 << 16)
    os.close(terminal)  # the kernel sends SIGHUP, and every write fails from now on
    assert process.wait(60) == 129
    assert the_run(tmp_path).checkpoint_file.exists()


def test_nohup_keeps_a_run_going() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = StopRequest()
    try:
        with stopped_by_signals(stop):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not stop.requested()

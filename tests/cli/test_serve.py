"""`hypersparse serve` from the shell."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from hypersparse.cli.serve import serve
from hypersparse.errors import OptionError, RunError
from hypersparse.serve.listen import PORT, listen, names_apart
from tests.runs.tiny import FINISHED, run_of, tiny_store
from tests.serve.made import DIGITS, drawing, file_of, served


@contextmanager
def started(*arguments: str | Path, folder: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command running, and where it says that it listens."""
    command = [sys.executable, "-m", "hypersparse", "serve", *map(str, arguments), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://\S+/", line)
        assert address is not None, line + (process.stderr.read() if process.stderr else "")
        yield process, address[0]
    finally:
        process.kill()
        process.communicate()


def predict(address: str, content: bytes) -> dict[str, object]:
    with urlopen(Request(f"{address}api/predict", content), timeout=20) as response:
        return dict(json.load(response))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_until_it_is_asked_to_stop(number: signal.Signals) -> None:
    with started(DIGITS, "--port", "0") as (process, address):
        answer = predict(address, file_of(drawing(2)))
        assert answer["sparse"]["class"] == "2"  # type: ignore[index]
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert out == f"Stopped ({number.name}).\n"
    with pytest.raises(URLError, match="refused"):
        predict(address, b"")


@pytest.mark.slow
def test_a_run_is_exported_on_the_way(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = run_of(tiny_store(tmp_path / "runs", tmp_path_factory), FINISHED)
    with (
        started(run.path, DIGITS, "--port", "0", folder=tmp_path) as (_, address),
        urlopen(f"{address}api/networks", timeout=20) as response,
    ):
        first, second = json.load(response)
    assert first["name"] == "/".join(run.path.parts[-2:])
    assert 0 < first["bytes"] < first["dense_bytes"]
    assert first["notes"] == []
    assert second["name"] == "digits.hsp"


@pytest.mark.slow
def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    files = [tmp_path / folder / "m28.hsp" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(DIGITS.read_bytes())
    with (
        started(*files, DIGITS, "--port", "0") as (_, address),
        urlopen(f"{address}api/networks", timeout=20) as response,
    ):
        assert [one["name"] for one in json.load(response)] == ["a/m28.hsp", "b/m28.hsp", "digits.hsp"]


def test_names_are_short_and_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert names_apart([Path("m.hsp"), Path("runs/art/seed-0")]) == ["m.hsp", "art/seed-0"]
    assert names_apart([Path("m.hsp"), Path("b/m.hsp")]) == ["here/m.hsp", "b/m.hsp"]
    assert names_apart([Path("m.hsp")] * 2) == ["here/m.hsp (1)", "here/m.hsp (2)"]
    runs = [Path("x/art/seed-0"), Path("y/art/seed-0"), Path("y/art/seed-1")]
    assert names_apart(runs) == ["art/seed-0 (1)", "art/seed-0 (2)", "art/seed-1"]
    assert names_apart([Path()]) == [f"{tmp_path.name}/here"]


def test_a_host_that_is_none_of_this_machine() -> None:
    for host in ("192.0.2.1", "no such host"):
        for port in (None, 0):
            with pytest.raises(OptionError, match="`--host` is an address of this machine"):
                listen([served()], host, port)


def test_a_port_that_is_taken() -> None:
    network = served()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OptionError, match=rf"Port {port} of 127.0.0.1 cannot be used \(.*\); pass another --port"):
            listen([network], "127.0.0.1", port)
    first = listen([network], "127.0.0.1", None)
    second = listen([network], "127.0.0.1", None)
    try:
        assert first.server_port != second.server_port
        assert first.address.startswith("http://127.0.0.1:")
        assert second.server_port != PORT
    finally:
        first.server_close()
        second.server_close()


def test_addresses() -> None:
    network = served()
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", None)):
        server = listen([network], host, 0)
        server.server_close()
        assert server.is_local == (host != "0.0.0.0")
        assert shown is None or server.address == f"http://{shown}:{server.server_port}/"


def test_what_is_no_network_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none\.hsp cannot be read: No such file"):
        serve([str(tmp_path / "none.hsp")])
    (tmp_path / "bad.hsp").write_bytes(DIGITS.read_bytes()[:1000])
    with pytest.raises(RunError, match=r"is not a whole \.hsp file"):
        serve([str(tmp_path / "bad.hsp")])
    (tmp_path / "text.txt").write_text("x")
    with pytest.raises(OptionError, match=r"takes a run or an \.hsp file"):
        serve([str(tmp_path / "text.txt")])
    with pytest.raises(RunError, match="nosuchrun"):
        serve(["nosuchrun"], runs_dir=tmp_path / "runs")

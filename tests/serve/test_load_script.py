"""What `benchmarks/serve_load.py` counts."""

import asyncio
import importlib.util
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType

import pytest

from hypersparse.serve import connection
from hypersparse.serve.server import Server
from tests.serve.made import served

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve_load.py"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("serve_load", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_crowd_and_slow_clients_are_counted(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "DRIP_SECONDS", 0.05)
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    ours, theirs = Pipe()
    with Server([served()]).running() as server:
        crowd = asyncio.run(script.crowd(server.server_port, clients=3, each=4)).row("a crowd", "all")
        script.attack(theirs, server.server_port, 5, b"GET / HTTP/1.1\r\nX-Slow: ", time.time() + 0.8)
    assert (crowd["answered"], crowd["requests"], crowd["others"]) == (12, 12, {})
    assert 0 < crowd["median_ms"] <= crowd["p99_ms"] <= crowd["worst_ms"]
    slow = ours.recv().row("slow", "all")
    assert slow["others"] == {"408": slow["requests"]}
    assert slow["requests"] >= 5
    rows = [{**crowd, "load_before": 0.5}, {**slow, "requests": 10, "others": {"408": 10}, "load_before": 0.5}]
    assert script.table(rows).splitlines()[3] == "| slow | all | 0 of 10 |  |  |  | 408: 10 | 0.5 |"
    ours.close()
    theirs.close()

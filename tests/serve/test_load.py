"""What the server promises when many ask, when some are slow, and when it is asked to stop."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from types import SimpleNamespace
from typing import Any

import pytest

from hypersparse.serve import connection as module
from hypersparse.serve import server as server_module
from hypersparse.serve.connection import MOST_OPEN, FairQueue, Places
from hypersparse.serve.network import Served
from hypersparse.serve.request import Refusal
from hypersparse.serve.server import Server
from tests.serve.made import drawing, file_of, served

TWO = file_of(drawing(2))
HEAD = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def network() -> Served:
    return served()


@pytest.fixture
def server(network: Served) -> Iterator[Server]:
    with Server([network]).running() as started:
        yield started


@contextmanager
def connected(server: Server, content: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(content)
        yield connection


def status_of(connection: socket.socket) -> int:
    """Of the one answer that comes before the end of the connection."""
    answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"].endswith(".")
    return int(answer.split()[1])


def asked(connection: HTTPConnection, query: str = "") -> tuple[HTTPResponse, dict[str, Any]]:
    connection.request("POST", f"/api/predict?drawn=1{query}", TWO)
    response = connection.getresponse()
    return response, json.loads(response.read())


def ask(server: Server, query: str = "") -> tuple[HTTPResponse, dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        return asked(connection, query)
    finally:
        connection.close()


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it does not happen")


@pytest.fixture
def held(network: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Predictions wait until this is set."""
    free, predict = threading.Event(), network.predict

    def waits(pixels: Any) -> dict[str, Any]:
        free.wait(10)
        return predict(pixels)

    monkeypatch.setattr(network, "predict", waits)
    yield free
    free.set()


def test_all_requests_of_twenty_clients_are_answered(server: Server) -> None:
    def client(_: int) -> list[int]:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.connect()
        first = connection.sock
        statuses = [asked(connection)[0].status for _ in range(10)]
        assert connection.sock is first  # is kept
        connection.close()
        return statuses

    with ThreadPoolExecutor(20) as pool:
        assert [status for statuses in pool.map(client, range(20)) for status in statuses] == [200] * 200


@pytest.mark.parametrize("head", [b"X-Slow: ", b"Content-Length: 9999\r\n\r\n"])
def test_slow_connections_make_room_for_an_honest_client(server: Server, head: bytes) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(server, HEAD + head)) for _ in range(MOST_OPEN + 30)]
        began = time.monotonic()
        assert ask(server)[0].status == 200
        assert time.monotonic() - began < 2
        assert [status_of(connection) for connection in slow[:30]] == [408] * 30  # the oldest, and with a sentence
        slow[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):  # the others have their time
            slow[-1].recv(1)


def test_who_has_most_connections_loses_the_oldest() -> None:
    ended: list[str] = []

    def connection(name: str, *, waits: bool = True) -> Any:
        hurry = lambda: ended.append(name)  # noqa: E731
        return SimpleNamespace(client=name[0], held=0, waits_for_client=waits, hurry=hurry)

    places = Places()
    places.put_last(connection("honest"))
    places.put_last(connection("a busy", waits=False))
    for number in range(MOST_OPEN):
        places.put_last(connection(f"a {number}"))
    assert ended == ["a 0", "a 1"]
    places.open = [connection("b", waits=False) for _ in range(MOST_OPEN)]
    with pytest.raises(Refusal, match="too much to do"):
        places.put_last(connection("c", waits=False))


def test_images_that_are_being_sent_have_a_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 25_000)
    slow = HEAD + b"Content-Length: 9999\r\n\r\n"
    with connected(server, slow) as first, connected(server, slow) as second, connected(server, slow):
        assert status_of(first) == 408
        assert ask(server)[0].status == 200
        second.settimeout(0.1)
        with pytest.raises(TimeoutError):
            second.recv(1)


def test_a_full_queue_is_said(server: Server, held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 8)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ask, server) for _ in range(4)]
        wait_until(lambda: len(server._predictions._waiting) == 4)
        response, content = ask(server)
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert content["error"] == "The server has too much to do; try again in a moment."
        held.set()
        assert [each.result()[0].status for each in waiting] == [200] * 4
    assert ask(server)[0].status == 200


def test_waiting_has_an_end(server: Server, held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ANSWER_SECONDS", 0.1)
    assert ask(server)[0].status == 503
    held.set()


def test_clients_take_turns_and_share_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 12)
    done: list[str] = []

    async def run() -> list[Any]:
        queue = FairQueue()
        requests = [queue.run(name[0], lambda name=name: done.append(name)) for name in names.split()]
        results = await asyncio.gather(*requests, return_exceptions=True)
        queue.close()
        return results

    names = "a1 a2 a3 b1 b2 c1 a4 c2 c3"
    results = asyncio.run(run())
    assert done == ["a1", "b1", "c1", "a2", "b2", "c2", "a3"]
    assert [isinstance(each, Refusal) for each in results] == [name in ("a4", "c3") for name in names.split()]


def test_a_comparison_blocks_nobody(server: Server, network: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, free = threading.Event(), threading.Event()

    def compare(_: Any) -> dict[str, Any]:
        inside.set()
        assert free.wait(10)
        return {"compared": True}

    monkeypatch.setattr(network, "compare", compare)
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(ask, server, "&compare=1")
        assert inside.wait(10)
        assert ask(server)[1]["sparse"]["class"] == "2"
        free.set()
        assert page.result()[1] == {"compared": True}


def test_requests_may_follow_at_once_but_not_inside_of_others(server: Server) -> None:
    get = b"GET /api/networks HTTP/1.1\r\nHost: localhost\r\n"
    with connected(server, (get + b"\r\n") * 2 + get + b"Connection: close\r\n\r\n") as connection:
        assert b"".join(iter(lambda: connection.recv(65536), b"")).count(b"HTTP/1.1 200 OK") == 3
    inner = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    with connected(server, get + f"Content-Length: {len(inner)}\r\n\r\n".encode() + inner) as connection:
        assert b"".join(iter(lambda: connection.recv(65536), b"")).count(b"HTTP/1.1") == 1
    twice = HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"
    with connected(server, twice) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert status_of(connection) == 411


def test_who_asks_whether_to_go_on_is_told(server: Server) -> None:
    head = HEAD + f"Content-Length: {len(TWO)}\r\nExpect: 100-continue\r\n\r\n".encode()
    with connected(server, head) as connection:
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(TWO)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_who_says_nothing_is_told_why_and_who_was_answered_is_not(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.3)
    with connected(server) as connection:
        assert status_of(connection) == 408
    with connected(server, b"GET /api/networks HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        assert b"".join(iter(lambda: connection.recv(65536), b"")).count(b"HTTP/1.1") == 1
    with connected(server, b"GET / HTTP/1.1\r\nHo") as connection:
        connection.shutdown(socket.SHUT_WR)
        assert status_of(connection) == 400


def test_who_does_not_take_the_answer_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.2)
    with connected(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300):
        wait_until(lambda: server._places.open)
        wait_until(lambda: not server._places.open)


def test_stopping_answers_what_has_begun(
    network: Served, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "STOP_SECONDS", 0.5)
    server = Server([network])
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        with server.running():
            kept = stack.enter_context(connected(server, b"GET /api/networks HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            assert kept.recv(65536)
            half = stack.enter_context(connected(server, HEAD + b"Content-Length: 9\r\n\r\n"))
            late = pool.submit(ask, server)
            wait_until(lambda: server._predictions._waiting and len(server._places.open) == 3)
            threading.Timer(0.2, held.set).start()
        assert kept.recv(10) == b""
        assert status_of(half) == 408
        response, _ = late.result()
        assert (response.status, response.headers["Connection"]) == (200, "close")
    with pytest.raises(ConnectionRefusedError):
        ask(server)


def test_stopping_leaves_no_socket_behind(network: Served) -> None:
    statuses = []
    for number in range(20):
        server = Server([network])
        with ExitStack() as stack:
            with server.running():
                connection = stack.enter_context(connected(server))
                time.sleep(0.005 * number)
            try:
                statuses.append(status_of(connection))
            except ConnectionResetError:
                statuses.append(0)  # it had not been accepted
    assert set(statuses) <= {0, 408}
    assert 408 in statuses

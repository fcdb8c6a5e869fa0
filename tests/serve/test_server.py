"""Real requests to a server in a thread."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from hypersparse.errors import OptionError
from hypersparse.serve import connection as connection_module
from hypersparse.serve import network as network_module
from hypersparse.serve import server as module
from hypersparse.serve.network import Served, timed_in_turns
from hypersparse.serve.request import is_ours
from hypersparse.serve.server import MOST_BYTES, Server
from tests.serve.made import bomb, drawing, file_of, linear, served

TWO = file_of(drawing(2))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    network = served()
    with Server([network, network]).running() as started:
        yield started


def ask(
    server: Server, path: str, body: bytes | None = None, *, method: str | None = None, **headers: str
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def refused(server: Server, status: int, *arguments: object, **options: object) -> str:
    """The sentence of a request that is refused, which is JSON and as safe as the page."""
    response, content = ask(server, *arguments, **options)  # type: ignore[arg-type]
    assert response.status == status, content
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in response.headers
    sentence = str(json.loads(content)["error"])
    assert sentence.endswith(".")
    assert "Traceback" not in sentence
    return sentence


def test_the_page_comes_with_a_strict_policy(server: Server) -> None:
    response, content = ask(server, "/")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Server"] == "hypersparse"
    assert b"://" not in content.split(b'id="data"')[1].replace(b"http://www.w3.org/2000/svg", b"")
    head, nothing = ask(server, "/", method="HEAD")
    assert (head.status, nothing, head.headers["Content-Length"]) == (200, b"", str(len(content)))


def test_networks_are_listed(server: Server) -> None:
    response, content = ask(server, "/api/networks")
    assert response.status == 200
    assert [one["name"] for one in json.loads(content)] == ["digits.hsp", "digits.hsp"]


@pytest.mark.parametrize("query", ["", "?network=1", "?network=0&drawn=1"])
def test_an_image_is_predicted(server: Server, query: str) -> None:
    response, content = ask(server, f"/api/predict{query}", TWO)
    assert response.status == 200
    answer = json.loads(content)
    assert answer["sparse"]["class"] == "2"
    assert len(answer["top"]) == 5
    assert "Access-Control-Allow-Origin" not in response.headers


def test_too_large_an_image_gets_to_read_why(server: Server) -> None:
    sentence = refused(server, 413, "/api/predict", b"x" * (MOST_BYTES + 1))
    assert sentence == "An image may have 10 MiB at most; send a smaller one."
    response, _ = ask(server, "/api/predict", b"", Content_Length="9" * 40)
    assert response.status == 413
    assert b"not a whole image" in ask(server, "/api/predict", b"x" * MOST_BYTES)[1]


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (400, b"", "not a whole image"),
        (400, b"<svg onload=alert(1)>", "not a whole image"),
        (400, TWO[:200], "not a whole image"),
        (413, bomb(60_000, 60_000), "40 million pixels at most"),
        (413, bomb(8000, 5001), "this one has 8000 x 5001"),
        (400, bomb(64, 64), "not a whole image"),
    ],
)
def test_what_is_no_image_is_one_sentence(server: Server, status: int, content: bytes, words: str) -> None:
    assert words in refused(server, status, "/api/predict", content)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "localhost.evil.example", "", "[::1", "a@b"])
def test_a_foreign_name_that_points_here_is_refused(server: Server, host: str) -> None:
    assert "--host" in refused(server, 421, "/", Host=host)
    assert "--host" in refused(server, 421, "/api/predict", TWO, Host=host)


def test_its_own_names_are_answered(server: Server) -> None:
    for host in ("localhost", f"127.0.0.1:{server.server_port}", "[::1]:80", "192.168.1.5:9000"):
        assert ask(server, "/", Host=host)[0].status == 200
    assert is_ours("Demo.Example:80", "demo.example")
    assert not is_ours("demo.example", "0.0.0.0")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://["])
def test_pages_of_others_may_not_ask(server: Server, origin: str) -> None:
    host = f"localhost:{server.server_port}"
    assert "Only the page of this server" in refused(server, 403, "/api/predict", TWO, Host=host, Origin=origin)
    assert ask(server, "/api/predict", TWO, Host=host, Origin=f"http://{host}")[0].status == 200


def test_unknown_paths_and_methods(server: Server) -> None:
    assert "There is nothing here" in refused(server, 404, "/../../etc/passwd")
    assert refused(server, 404, "/static/x.js")
    assert refused(server, 405, "/api/predict") == "/api/predict takes POST, not GET."
    assert refused(server, 405, "/", b"x") == "/ takes GET, HEAD, not POST."
    assert refused(server, 501, "/", method="DELETE")
    assert refused(server, 501, "/api/predict", method="OPTIONS", Origin="https://evil.example")


@pytest.mark.parametrize("number", ["2", "-1", "x", "", "9" * 30, "%C2%B2"])
def test_a_network_that_is_not_there(server: Server, number: str) -> None:
    assert "from 0 to 1" in refused(server, 400, f"/api/predict?network={number}", TWO)


def raw(server: Server, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\n\r\n", 411),
        (b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 411),
        (b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nshort", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\n\r\n", 421),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.0\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
    ],
)
def test_requests_that_are_none(server: Server, request_: bytes, status: int) -> None:
    answer = raw(server, request_)
    if answer.startswith(b"HTTP"):  # whose request names no version it knows gets an answer without a head
        head, _, answer = answer.partition(b"\r\n\r\n")
        assert f" {status} ".encode() in head.splitlines()[0]
    else:
        assert status in (400, 414, 505)
    assert json.loads(answer)["error"]


def test_a_body_that_does_not_come_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        for _ in range(20):  # a byte now and then would keep a mere timeout waiting for ever
            connection.sendall(b"x")
            connection.settimeout(0.05)
            try:
                answer = connection.recv(65536)
                break
            except TimeoutError:
                continue
    assert b" 408 " in answer


def test_a_head_that_comes_too_slowly_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        connection.settimeout(0.05)
        answer = b""
        for _ in range(40):
            try:
                connection.sendall(b"x")
                answer = connection.recv(65536)
                break
            except TimeoutError:
                continue
    assert b" 408 " in answer


def test_networks_predict_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []
    most: list[int] = []

    def watched(first: Callable[[], object], second: Callable[[], object], *, seconds: float) -> Any:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.1)
        times = timed_in_turns(first, second, seconds=seconds)
        inside.pop()
        return times

    monkeypatch.setattr(network_module, "timed_in_turns", watched)
    networks = [served(), Served("other.hsp", linear((1, 28, 28)), 99)]
    with Server(networks).running() as server, ThreadPoolExecutor(4) as pool:
        answers = pool.map(
            lambda number: ask(server, f"/api/predict?network={number}&drawn=1&compare=1", TWO), (0, 1, 0, 1)
        )
        assert [response.status for response, _ in answers] == [200] * 4
    assert most == [1] * 4


def test_a_mistake_of_ours_is_no_silence(
    server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_: bytes) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "decode", broken)
    assert "made a mistake" in refused(server, 500, "/api/predict", TWO)
    text = ""
    for _ in range(200):
        text += capfd.readouterr().err
        if "ZeroDivisionError" in text:
            return
        time.sleep(0.05)
    pytest.fail(text)


def test_an_address_that_is_none_is_said() -> None:
    for host in ("no such host", "192.0.2.1"):  # an address for examples, which no machine has
        with pytest.raises(OptionError, match=f"`--host` is an address of this machine, .*; got `{host}`"):
            Server([served()], host=host)

"""The server of the page and its requests; anything else gets one sentence.

It uses asyncio and two threads. An ASGI server such as uvicorn has no deadline for a request's head and no limit per
client. When it is full, it accepts no new clients. With it this file and `connection` would be needed as well.
"""

import asyncio
import errno
import json
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import parse_qs

from hypersparse.errors import HypersparseError, OptionError
from hypersparse.serve.connection import ANSWER_SECONDS, BUSY, MOST_HEAD, Connection, FairQueue, Places
from hypersparse.serve.images import Pixels, TooManyPixels, decode, pixels_of
from hypersparse.serve.network import Served
from hypersparse.serve.page import make_page
from hypersparse.serve.request import MOST_BYTES, Refusal, Request, parse

STOP_SECONDS = 3.0  # for started requests when the server stops
ACCEPTED = 32  # connections at a time, so that all are read before they are the oldest of `MOST_OPEN`
BACKLOG = 1024  # connections that the system queues
SAFE_HEADERS = {
    "Server": "hypersparse",  # without the version of Python
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
FOREIGN = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL)  # errors of binding to an address of another machine
WAYS = {"/": ("GET", "HEAD"), "/api/networks": ("GET", "HEAD"), "/api/predict": ("POST",)}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    content: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = "application/json"
    policy: str = "default-src 'none'; frame-ancestors 'none'"  # of answers other than the page
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self, *, keeps_alive: bool, has_body: bool) -> bytes:
        """Encode the answer as HTTP; answers to HEAD have no body."""
        headers = {
            "Content-Type": self.kind,
            "Content-Length": str(len(self.content)),
            "Content-Security-Policy": self.policy,
            "Connection": "keep-alive" if keeps_alive else "close",
            **SAFE_HEADERS,
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}", *(f"{key}: {headers[key]}" for key in headers)]
        return "\r\n".join([*lines, "", ""]).encode() + (self.content if has_body else b"")


class Server:
    """Serves networks at `address`."""

    def __init__(self, networks: Sequence[Served], *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.networks, self.host = tuple(networks), host
        page = make_page(networks, MOST_BYTES)
        self._page = Answer(page.text.encode(), kind="text/html; charset=utf-8", policy=page.policy)
        self._listed = _json([network.about() for network in networks])
        self._socket = _bound(host, port)
        self._bound_host, self.server_port = self._socket.getsockname()[:2]
        self._places, self._tasks, self._stop = Places(), set[asyncio.Task[None]](), asyncio.Event()
        # Predictions have their own thread: a comparison takes up to a second, a prediction less than a millisecond.
        # Only this thread decodes, since an image of the largest size needs about 350 MB.
        self._predictions, self._comparisons = FairQueue(), FairQueue()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serve from a background thread until the end of the block."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_until_complete, args=(self._serve(),), name="server")
        thread.start()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(self._stop.set)
            thread.join()
            loop.close()

    @property
    def address(self) -> str:
        """The URL on this machine."""
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._bound_host, self._bound_host)
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.server_port}/"

    @property
    def is_local(self) -> bool:
        """Whether it is reachable from this machine only."""
        return ip_address(self._bound_host).is_loopback

    def server_close(self) -> None:
        """Release the port."""
        self._socket.close()

    async def _serve(self) -> None:
        listener = await asyncio.start_server(self._connected, sock=self._socket, limit=MOST_HEAD, backlog=ACCEPTED)
        self._socket.listen(BACKLOG)
        await self._stop.wait()
        with suppress(NotImplementedError):  # on Windows; elsewhere accepted connections get their task before the end
            asyncio.get_running_loop().remove_reader(self._socket)
            await asyncio.sleep(0.05)
        listener.close()
        for seconds in (STOP_SECONDS, 0.0):
            for connection in self._places.open:
                connection.hurry(seconds if connection.is_heard else 0.0)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=seconds or 1.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._predictions.close()
        self._comparisons.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, connection = asyncio.current_task(), Connection(reader, writer)
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, Refusal):  # the client is gone, or does not read
                while await self._exchange(connection):
                    await asyncio.sleep(0)  # other clients are served between pipelined requests
        finally:
            self._tasks.discard(task)
            self._places.remove(connection)
            connection.close()

    async def _exchange(self, connection: Connection) -> bool:
        """Answer one request; returns whether another may follow."""
        request, refused = None, None
        try:
            self._places.put_last(connection)
            request = parse(await connection.head())
            answer = await self._answer(connection, request)
        except Refusal as refusal:
            if connection.is_answered and not connection.is_heard:
                return False
            refused = refusal
            answer = _json({"error": refusal.sentence}, status=refusal.status, headers=refusal.headers)
        keeps_alive = refused is None and request is not None and request.keeps_alive and not self._stop.is_set()
        has_body = request is None or request.method != "HEAD"
        connection.is_answered, connection.is_heard = True, False
        await connection.send(answer.to_bytes(keeps_alive=keeps_alive, has_body=has_body))
        if not keeps_alive and (refused is None or refused.status != HTTPStatus.REQUEST_TIMEOUT):
            await connection.finish()
        return keeps_alive

    async def _answer(self, connection: Connection, request: Request) -> Answer:
        try:
            return await self._routed(connection, request)
        except (Refusal, ConnectionError):
            raise
        except HypersparseError as error:
            too_many = isinstance(error, TooManyPixels)
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if too_many else HTTPStatus.BAD_REQUEST
            raise Refusal(status, str(error)) from None
        except Exception:
            traceback.print_exc()
            sentence = "The server made a mistake; its terminal says which."
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, sentence) from None

    async def _routed(self, connection: Connection, request: Request) -> Answer:
        request.check_sender(self.host)
        path = request.address.path
        if path not in WAYS:
            raise Refusal(HTTPStatus.NOT_FOUND, f"There is nothing here; there are {', '.join(WAYS)}.")
        if request.method not in WAYS[path]:
            allowed = ", ".join(WAYS[path])
            sentence = f"{path} takes {allowed}, not {request.method}."
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, sentence, {"Allow": allowed})
        if path == "/":
            return self._page
        if path == "/api/networks":
            return self._listed
        return await self._predicted(connection, request)

    async def _predicted(self, connection: Connection, request: Request) -> Answer:
        asked = parse_qs(request.address.query, keep_blank_values=True)
        drawn, compared = (asked.get(name, ["0"])[-1] == "1" for name in ("drawn", "compare"))
        connection.held = request.length()
        self._places.make_room()
        content = await connection.body(says_continue=request.headers.get("Expect", "").lower() == "100-continue")
        network = self._network(asked.get("network", ["0"])[-1])

        def pixels() -> Pixels:
            return pixels_of(decode(content), network.shape, drawn=drawn, dark_on_light=network.dark_on_light)

        async with connection.within(ANSWER_SECONDS, BUSY, for_client=False):
            if not compared:
                return _json(await self._predictions.run(connection.client, lambda: network.predict(pixels())))
            image = await self._predictions.run(connection.client, pixels)
            return _json(await self._comparisons.run(connection.client, lambda: network.compare(image)))

    def _network(self, number: str) -> Served:
        count = len(self.networks)
        if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < count):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"`network` is a number from 0 to {count - 1}.")
        return self.networks[int(number)]


def _json(content: Any, **options: Any) -> Answer:
    return Answer(json.dumps(content, allow_nan=False).encode(), **options)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise _no_host(host) from None
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(where[:2], family=family, dualstack_ipv6=both)
    except OSError as error:
        if error.errno in FOREIGN:
            raise _no_host(host) from None
        raise


def _no_host(host: str) -> OptionError:
    return OptionError(f"`--host` is an address of this machine, such as 127.0.0.1; got `{host}`.")

"""Connections with deadlines, and fair shares of connections and computation for clients."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from hypersparse.serve.request import MOST_BYTES, Refusal

HEAD_SECONDS, BODY_SECONDS = 10.0, 20.0  # for the head of a request, and for its body
ANSWER_SECONDS = 10.0  # queueing and computing
SEND_SECONDS = 20.0  # to send an answer, or to discard refused input
MOST_HEAD, CHUNK = 2**16, 2**16
MOST_OPEN = 224  # connections; macOS lets a process open 256 files
MOST_HELD = 16 * MOST_BYTES  # bytes of images in transfer
MOST_WAITING = 64  # requests in a queue; clients share half of it
BUSY = (
    HTTPStatus.SERVICE_UNAVAILABLE,
    "The server has too much to do; try again in a moment.",
    {"Retry-After": "1"},
)
LATE = (HTTPStatus.REQUEST_TIMEOUT, "The request took too long to come.")
LATE_BODY = (HTTPStatus.REQUEST_TIMEOUT, "The image took too long to come.")

Result = TypeVar("Result")


class Connection:
    """A client's socket, and the deadline of the current operation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.client = str(writer.get_extra_info("peername")[0])
        self.held = 0  # bytes of an image in transfer
        self.is_answered = self.is_heard = False  # an earlier request was answered; bytes of the next one arrived
        self.waits_for_client = False
        self._deadline: asyncio.Timeout | None = None
        writer.transport.set_write_buffer_limits(0)  # so that `drain` returns after everything is sent

    async def head(self) -> bytes:
        """Read the head of the next request, up to its empty line; raises ConnectionError without one."""
        async with self.within(HEAD_SECONDS, LATE):
            if not (first := await self._reader.read(1)):
                raise ConnectionResetError
            self.is_heard = True
            try:
                return first + await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                raise Refusal(HTTPStatus.BAD_REQUEST, "The request ended too early.") from None
            except asyncio.LimitOverrunError:
                in_headers = b"\n" in await self._reader.read(MOST_HEAD)
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if in_headers else HTTPStatus.REQUEST_URI_TOO_LONG
        raise Refusal(status, "The request is too long.")

    async def body(self, *, says_continue: bool) -> bytes:
        """Read the body, `held` bytes."""
        async with self.within(BODY_SECONDS, LATE_BODY):
            if says_continue:
                self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            try:
                return await self._reader.readexactly(self.held)
            except asyncio.IncompleteReadError as error:
                sentence = f"The image ended after {len(error.partial)} of {self.held} bytes."
                raise Refusal(HTTPStatus.BAD_REQUEST, sentence) from None
            finally:
                self.held = 0

    async def send(self, content: bytes) -> None:
        """Send content before the deadline."""
        async with self.within(SEND_SECONDS, LATE):
            self._writer.write(content)
            await self._writer.drain()

    async def finish(self) -> None:
        """Read and discard pending input. A socket closed before would drop the answer of a client that still sends."""
        self._writer.write_eof()
        async with self.within(SEND_SECONDS, LATE):
            while await self._reader.read(CHUNK):
                pass

    @asynccontextmanager
    async def within(self, seconds: float, refusal: tuple[Any, ...], *, for_client: bool = True) -> AsyncIterator[None]:
        """Raise a refusal if the block takes longer than `seconds`."""
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                self.waits_for_client = for_client
                yield
        except TimeoutError:
            raise Refusal(*refusal) from None
        finally:
            self._deadline, self.waits_for_client = None, False

    def hurry(self, seconds: float = 0.0) -> None:
        """Shorten the current deadline."""
        if self._deadline is not None and not self._deadline.expired():
            soon = asyncio.get_running_loop().time() + seconds
            self._deadline.reschedule(min(soon, self._deadline.when() or soon))

    def close(self) -> None:
        """Close the connection without sending pending data."""
        self._writer.transport.abort()


class Places:
    """The open connections, the least recently answered first."""

    def __init__(self) -> None:
        self.open: list[Connection] = []

    def put_last(self, connection: Connection) -> None:
        """Append a new connection, or move one that was answered to the end."""
        self.remove(connection)
        self.open.append(connection)
        self.make_room()

    def make_room(self) -> None:
        """Above the limits, close the first waiting connection of the client with most of them."""
        while (many := len(self.open) > MOST_OPEN) or sum(each.held for each in self.open) > MOST_HELD:
            waiting = [each for each in self.open if each.waits_for_client and (many or each.held)]
            if not waiting:
                raise Refusal(*BUSY)
            [(most, _)] = Counter(each.client for each in waiting).most_common(1)
            ended = next(each for each in waiting if each.client == most)
            ended.hurry()
            self.open.remove(ended)

    def remove(self, connection: Connection) -> None:
        """Remove a connection, if it is in the list."""
        if connection in self.open:
            self.open.remove(connection)


class FairQueue:
    """Runs jobs in one thread; clients take turns, and each has its own queue."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._turn = asyncio.Lock()
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: list[str] = []  # clients of the waiting requests

    async def run(self, client: str, job: Callable[[], Result]) -> Result:
        """Run a job when it is the client's turn, and return its result."""
        share = max(MOST_WAITING // 2 // len({*self._waiting, client}), 1)
        if self._waiting.count(client) >= share or len(self._waiting) >= MOST_WAITING:
            raise Refusal(*BUSY)
        line = self._lines.setdefault(client, asyncio.Lock())
        self._waiting.append(client)
        try:
            async with line, self._turn:
                return await asyncio.get_running_loop().run_in_executor(self._thread, job)
        finally:
            self._waiting.remove(client)

    def close(self) -> None:
        """Wait for the current job, and cancel the others."""
        self._thread.shutdown(cancel_futures=True)

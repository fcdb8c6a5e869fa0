"""Measure `hypersparse serve` under load and attack, and print a table.

python benchmarks/serve_load.py [--network cifar10-resnet32-0.998] [--json ROWS.json]

Server and clients share the machine. Clients have the addresses 127.0.0.1, 127.0.0.2 and so on, which Linux allows.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

PATIENCE = 30.0  # seconds until a client gives up
ATTACK_SECONDS = 25.0  # longer than the server waits for a head or a body
DRIP_SECONDS = 0.5  # between two bytes of a slow client
CLOSED, GAVE_UP = "closed without a status", "no answer in time"


def png(side: int) -> bytes:
    """A square colour image with a gradient, which compresses well at any size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    row = b"\0" + bytes(number % 251 for number in range(3 * side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(row * side, 1)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@dataclass
class Outcome:
    """What a group of clients got: how many of each status, and the seconds of every 200."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def row(self, scenario: str, who: str) -> dict[str, Any]:
        """As a row of the table."""
        times = sorted(1000 * each for each in self.seconds)
        late = quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else None
        return {
            "scenario": scenario,
            "clients": who,
            "requests": self.statuses.total(),
            "answered": self.statuses["200"],
            "median_ms": median(times) if times else None,
            "p99_ms": late,
            "worst_ms": times[-1] if times else None,
            "others": {name: count for name, count in sorted(self.statuses.items()) if name != "200"},
        }


class Client:
    """Asks again and again over one connection for as long as the server keeps it."""

    def __init__(self, port: int, outcome: Outcome, *, address: str = "127.0.0.1", query: str = "") -> None:
        self._port, self._outcome, self._address = port, outcome, address
        self._path = f"/api/predict?network=0{query}"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: bytes) -> None:
        """One request; a kept connection that has ended meanwhile is opened again, as browsers do."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                kept = self._streams is not None
                status = await self._try(body)
                if status == CLOSED and kept:
                    status = await self._try(body)
        except TimeoutError:
            self.close()
            status = GAVE_UP
        self._outcome.statuses[status] += 1
        if status == "200":
            self._outcome.seconds.append(time.perf_counter() - began)

    async def _try(self, body: bytes) -> str:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._address, 0))
            reader, writer = self._streams
            length = f"Content-Length: {len(body)}"
            writer.write(f"POST {self._path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            await reader.readexactly(int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1]))  # type: ignore[index]
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return CLOSED
        if head.startswith("HTTP/1.0") or "connection: close" in head.lower():
            self.close()
        return head.split()[1]

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def drip(port: int, outcome: Outcome, head: bytes, ends: float) -> None:
    """Send a byte now and then, and connect again whenever the server has had enough."""
    loop = asyncio.get_running_loop()
    while time.time() < ends:
        with socket.socket() as connection, suppress(ConnectionError):
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
            answer = await _dripped(loop, connection, head, ends)
            if answer is not None:
                outcome.statuses[answer.split()[1].decode() if answer else CLOSED] += 1


async def _dripped(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, head: bytes, ends: float
) -> bytes | None:
    answer = asyncio.ensure_future(loop.sock_recv(connection, 100))
    content = head
    while not answer.done() and (left := ends - time.time()) > 0:
        with suppress(ConnectionError):  # what was answered can still be read
            await loop.sock_sendall(connection, content)
        await asyncio.wait([answer], timeout=min(DRIP_SECONDS, left))
        content = b"x"
    if answer.cancel():
        return None
    return b"" if answer.exception() else answer.result()


def attack(pipe: Connection, port: int, sockets: int, head: bytes, ends: float) -> None:
    """Slow clients in a process of their own."""
    outcome = Outcome()

    async def run() -> None:
        await asyncio.gather(*(drip(port, outcome, head, ends) for _ in range(sockets)))

    asyncio.run(run())
    pipe.send(outcome)


async def crowd(port: int, *, clients: int, each: int, query: str = "") -> Outcome:
    """Clients that ask one thing after another."""
    outcome, small = Outcome(), png(32)

    async def person() -> None:
        client = Client(port, outcome, query=query)
        for _ in range(each):
            await client.ask(small)
        client.close()

    await asyncio.gather(*(person() for _ in range(clients)))
    return outcome


async def honest(port: int, ends: Callable[[], bool]) -> Outcome:
    """One client that asks ten times a second, each time over a new connection."""
    outcome, small = Outcome(), png(32)
    while not ends():
        client = Client(port, outcome)
        await client.ask(small)
        client.close()
        await asyncio.sleep(0.1)
    return outcome


async def twenty_clients(port: int) -> list[dict[str, Any]]:
    """1,000 requests of 20 clients."""
    return [(await crowd(port, clients=20, each=50)).row("20 clients", "all")]


async def comparisons(port: int) -> list[dict[str, Any]]:
    """The same while 4 pages ask for the dense network, too."""
    pages, outcome = asyncio.ensure_future(crowd(port, clients=4, each=10, query="&compare=1")), Outcome()
    outcome = await crowd(port, clients=20, each=50)
    return [outcome.row("20 clients, 4 pages", "clients"), (await pages).row("20 clients, 4 pages", "pages")]


def slow(sockets: int, head: bytes, scenario: str) -> Callable[[int], Coroutine[Any, Any, list[dict[str, Any]]]]:
    """Slow clients at the honest one's own address, which reconnect for good."""

    async def run(port: int) -> list[dict[str, Any]]:
        ends, (ours, theirs) = time.time() + ATTACK_SECONDS, Pipe()
        process = Process(target=attack, args=(theirs, port, sockets, head, ends))
        process.start()
        await asyncio.sleep(1)  # all are connected
        outcome = await honest(port, lambda: time.time() > ends)
        return [outcome.row(scenario, "honest"), ours.recv().row(scenario, "slow")]

    return run


async def full_queue(port: int) -> list[dict[str, Any]]:
    """200 images of 9 million pixels at once, of 40 addresses, and an honest client meanwhile."""
    large, outcome = png(3000), Outcome()

    async def person(number: int) -> None:
        client = Client(port, outcome, address=f"127.0.0.{2 + number % 40}")
        await client.ask(large)
        client.close()

    flood = asyncio.gather(*(person(number) for number in range(200)))
    await asyncio.sleep(0.5)
    rows = [(await honest(port, flood.done)).row("full queue", "honest"), outcome.row("full queue", "flood")]
    await flood
    return rows


HEAD = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\n"
SCENARIOS = {
    "clients": twenty_clients,
    "comparisons": comparisons,
    "slowloris": slow(200, HEAD + b"X-Slow: ", "slowloris of 200"),
    "slowloris-1000": slow(1000, HEAD + b"X-Slow: ", "slowloris of 1,000"),
    "slow-body": slow(200, HEAD + b"Content-Length: 9999\r\n\r\n", "slow bodies of 200"),
    "full-queue": full_queue,
}


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown."""
    names = ("scenario", "clients", "answered", "median, ms", "99 %, ms", "worst, ms", "others", "load before")
    lines = ["| " + " | ".join(names) + " |", "| --- " * len(names) + "|"]
    for row in rows:
        others = ", ".join(f"{name}: {count:,}" for name, count in row["others"].items())
        times = (row[name] for name in ("median_ms", "p99_ms", "worst_ms"))
        figures = ["" if time is None else f"{time:,.3g}" if time < 100 else f"{time:,.0f}" for time in times]
        counts = f"{row['answered']:,} of {row['requests']:,}"
        lines.append(
            "| "
            + " | ".join([row["scenario"], row["clients"], counts, *figures, others, f"{row['load_before']:.1f}"])
            + " |"
        )
    return "\n".join(lines)


def measure(network: str, scenario: str) -> list[dict[str, Any]]:
    """The rows of one scenario, with a server of its own."""
    command = [sys.executable, "-m", "hypersparse", "serve", network, "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r":(\d+)/", server.stdout.readline())
        assert found is not None
        load = os.getloadavg()[0]
        rows = asyncio.run(SCENARIOS[scenario](int(found[1])))
        return [{**row, "load_before": round(load, 2)} for row in rows]
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", default="cifar10-resnet32-0.998")
    parser.add_argument("--scenarios", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = [row for scenario in asked.scenarios for row in measure(asked.network, scenario)]
    print(table(rows))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

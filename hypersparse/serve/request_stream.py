"""What a connection sends, and whether it comes from a page of this server."""

import io
import socket
import time
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit


class Incoming(io.RawIOBase):
    """What a connection sends, until a deadline: a byte now and then would keep a mere timeout waiting for ever."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Set the deadline anew."""
        self._ends = time.monotonic() + seconds

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As many bytes as there are; waits for the first."""
        left, patience = self._ends - time.monotonic(), self._connection.gettimeout()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left if patience is None else min(left, patience))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(patience)  # of what is sent, too


def is_at(origin: str, host: str) -> bool:
    """Whether an Origin header is of a page of the server that a Host header names.

    >>> is_at("http://localhost:80", "LOCALHOST:80"), is_at("http://evil.example", "localhost"), is_at("http://[", "[")
    (True, False, False)
    """
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def is_ours(header: str, host: str) -> bool:
    """Whether a Host header names this server: by `localhost`, by an address, or as it was told to be called.

    A foreign page whose name was made to point here sends its own name, never an address.

    >>> is_ours("localhost:8765", "127.0.0.1"), is_ours("[::1]:80", "::1"), is_ours("evil.example:8765", "127.0.0.1")
    (True, True, False)
    """
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", host.lower()):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

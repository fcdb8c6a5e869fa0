"""Parsing of a request's head, and checks that it comes from a page of this server."""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, parse_headers
from ipaddress import ip_address
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

MOST_BYTES = 10 * 2**20  # of an encoded image
MOST_DIGITS = 12  # of the header Content-Length
METHODS = ("GET", "HEAD", "POST")


class Refusal(Exception):  # noqa: N818  # an answer, not an error of ours
    """The reason to refuse a request: a status and one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


@dataclass(frozen=True)
class Request:
    """The head of a request; its body is not read yet."""

    method: str
    address: SplitResult
    headers: HTTPMessage
    keeps_alive: bool

    def length(self) -> int:
        """The size of the image in bytes."""
        given = self.headers.get_all("Content-Length") or [""]
        if len(given) != 1 or not (given[0].isascii() and given[0].isdigit()) or "Transfer-Encoding" in self.headers:
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "An image is sent with its length (Content-Length).")
        if len(given[0]) > MOST_DIGITS or int(given[0]) > MOST_BYTES:
            sentence = f"An image may have {MOST_BYTES // 2**20} MiB at most; send a smaller one."
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
        return int(given[0])

    def check_sender(self, host: str) -> None:
        """Refuse requests of foreign pages, such as by DNS rebinding."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not is_ours(hosts[0], host):
            raise Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This server answers to its address or `localhost` only; for another name start it with --host NAME.",
            )
        origin = self.headers.get("Origin")
        if origin is not None and not is_at(origin, hosts[0]):
            raise Refusal(HTTPStatus.FORBIDDEN, "Only the page of this server may ask it.")


def parse(head: bytes) -> Request:
    """Parse the bytes of a request up to its empty line.

    >>> parse(b"GET /api/networks HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n").address.path
    '/api/networks'
    """
    line, _, fields = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or not re.fullmatch(r"HTTP/\d\.\d", words[2]):
        raise Refusal(HTTPStatus.BAD_REQUEST, "This is no HTTP request.")
    method, target, version = words
    if version >= "HTTP/2":
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This server speaks HTTP/1.1.")
    if method not in METHODS:
        raise Refusal(HTTPStatus.NOT_IMPLEMENTED, f"This server takes {', '.join(METHODS)}.")
    try:
        headers, address = parse_headers(io.BytesIO(fields)), urlsplit(target)
    except HTTPException:
        raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request has too many headers.") from None
    except ValueError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "What is asked for is no address.") from None
    # The body of a GET is not read, so what follows it on the connection is not the next request.
    has_body = method != "POST" and ("Content-Length" in headers or "Transfer-Encoding" in headers)
    closes = "close" in headers.get("Connection", "").lower()
    return Request(method, address, headers, version == "HTTP/1.1" and not has_body and not closes)


def is_at(origin: str, host: str) -> bool:
    """Whether an Origin header belongs to the server that a Host header names.

    >>> is_at("http://localhost:80", "LOCALHOST:80"), is_at("http://evil.example", "localhost"), is_at("http://[", "[")
    (True, False, False)
    """
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def is_ours(header: str, host: str) -> bool:
    """Whether a Host header names this server: `localhost`, an address, or the name in `--host`.

    A foreign page with DNS rebinding sends its own name, never an address.

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

"""The server: the page, what it asks for, and one sentence for everything else."""

import errno
import io
import json
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import SplitResult, parse_qs, urlsplit

from hypersparse.errors import HypersparseError, OptionError
from hypersparse.serve.images import TooManyPixels, decode, pixels_of
from hypersparse.serve.network import Served
from hypersparse.serve.page import Page, make_page
from hypersparse.serve.request_stream import Incoming, is_at, is_ours

MOST_BYTES = 10 * 2**20  # of an image as it is sent
MOST_DRAINED = 4 * MOST_BYTES  # read and thrown away, so that who sends too much gets to read why not
MOST_AT_ONCE = 16  # connections; further ones are closed
HEAD_SECONDS, BODY_SECONDS = 10.0, 20.0  # for all of a request's head, and all of its body
LOOK_SECONDS = 0.2  # how often a running server looks whether it was asked to stop
CHUNK = 2**16
MOST_DIGITS = 12  # of a Content-Length
SAFE_HEADERS = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)
FOREIGN = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL)  # what binding to another machine's address gives
NOTHING_MORE = "default-src 'none'; frame-ancestors 'none'"  # the policy of answers that are not the page


class Refusal(Exception):  # noqa: N818  # an answer, not an error of ours
    """Why a request is not answered: a status and one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


class Server(ThreadingHTTPServer):
    """Serves networks until `shutdown`; `address` says where."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, networks: Sequence[Served], *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.networks = tuple(networks)
        self.page: Page = make_page(networks, MOST_BYTES)
        self.host = host
        # One image of the largest size takes some 350 MB while it is decoded, and two predictions at once, of whichever
        # networks, would lengthen each other's times.
        self.one_at_a_time = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError):
            raise _no_host(host) from None
        self.address_family = family
        try:
            super().__init__(where[:2], Handler)  # type: ignore[arg-type]  # text and a number for both families
        except OSError as error:
            if error.errno in FOREIGN:
                raise _no_host(host) from None
            raise

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Answers from a thread of its own until the end of the block."""
        thread = threading.Thread(target=self.serve_forever, args=(LOOK_SECONDS,), name="server")
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()

    @property
    def address(self) -> str:
        """What to open in a browser on this machine."""
        host = str(self.server_address[0])
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.server_address[1]}/"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(str(self.server_address[0])).is_loopback

    def server_bind(self) -> None:
        """Bind without asking a name server what this machine is called, which can take a minute."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each connection, as long as there are few."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away while it was answered is nothing to report; anything else is."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = 10  # seconds without a byte

    def setup(self) -> None:
        """Read with a deadline."""
        super().setup()
        self.rfile.close()
        self._incoming = Incoming(self.connection, HEAD_SECONDS)
        self.rfile = io.BufferedReader(self._incoming)

    def do_GET(self) -> None:  # http.server calls these names
        """The page, or what there is to try."""
        self._answered({"/": self._page, "/api/networks": self._networks})

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """A prediction for the image in the body."""
        self._answered({"/api/predict": self._predict})

    def _answered(self, routes: Mapping[str, Any]) -> None:
        try:
            self._check_sender()
            path = self._address().path
            if path not in routes:
                raise self._unknown(path)
            routes[path]()
        except Refusal as refusal:
            self._refuse(refusal)
        except HypersparseError as error:
            too_many = isinstance(error, TooManyPixels)
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if too_many else HTTPStatus.BAD_REQUEST
            self._refuse(Refusal(status, str(error)))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception:
            self._refuse(
                Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "The server made a mistake; its terminal says which.")
            )
            raise

    def _check_sender(self) -> None:
        """Only pages of this server may ask: a foreign site may have made its name point here."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not is_ours(hosts[0], self.server.host):
            raise Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This server answers to its address or `localhost` only; for another name start it with --host NAME.",
            )
        origin = self.headers.get("Origin")
        if origin is not None and not is_at(origin, hosts[0]):
            raise Refusal(HTTPStatus.FORBIDDEN, "Only the page of this server may ask it.")

    def _address(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError:
            raise Refusal(HTTPStatus.BAD_REQUEST, "What is asked for is no address.") from None

    def _unknown(self, path: str) -> Refusal:
        ways = {"/": "GET, HEAD", "/api/networks": "GET, HEAD", "/api/predict": "POST"}
        if path in ways:
            sentence = f"{path} takes {ways[path]}, not {self.command}."
            return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, sentence, Allow=ways[path])
        return Refusal(HTTPStatus.NOT_FOUND, f"There is nothing here; there are {', '.join(ways)}.")

    def _page(self) -> None:
        page = self.server.page
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", page.text.encode(), page.policy)

    def _networks(self) -> None:
        self._send_json(HTTPStatus.OK, [network.about() for network in self.server.networks])

    def _predict(self) -> None:
        asked = parse_qs(self._address().query, keep_blank_values=True)
        content = self._body()
        network = self._network(asked.get("network", ["0"])[-1])
        drawn = asked.get("drawn", ["0"])[-1] == "1"
        with self.server.one_at_a_time:
            image = decode(content)
            pixels = pixels_of(image, network.shape, drawn=drawn, dark_on_light=network.dark_on_light)
            del image
            answer = network.predict(pixels)
        self._send_json(HTTPStatus.OK, answer)

    def _network(self, number: str) -> Served:
        count = len(self.server.networks)
        if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < count):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"`network` is a number from 0 to {count - 1}.")
        return self.server.networks[int(number)]

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "An image is sent with its length (Content-Length).")
        if len(length) > MOST_DIGITS or int(length) > MOST_BYTES:
            self._drain(int(length[:MOST_DIGITS]))
            limit = f"{MOST_BYTES // 2**20} MiB"
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"An image may have {limit} at most; send a smaller one."
            )
        content = b"".join(self._chunks(int(length)))
        if len(content) < int(length):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"The image ended after {len(content)} of {length} bytes.")
        return content

    def _drain(self, length: int) -> None:
        if length <= MOST_DRAINED:
            for _ in self._chunks(length):
                pass

    def _chunks(self, length: int) -> Any:
        self._incoming.allow(BODY_SECONDS)
        while length > 0:
            try:
                chunk = self.rfile.read1(min(length, CHUNK))
            except TimeoutError:
                raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "The image took too long to come.") from None
            if not chunk:
                return
            length -= len(chunk)
            yield chunk

    def _refuse(self, refusal: Refusal) -> None:
        self.close_connection = True
        self._send_json(refusal.status, {"error": refusal.sentence}, refusal.headers)

    def _send_json(self, status: HTTPStatus, content: Any, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        text = json.dumps(content, allow_nan=False).encode()
        self._send(status, "application/json", text, NOTHING_MORE, headers)

    def _send(
        self,
        status: HTTPStatus,
        kind: str,
        content: bytes,
        policy: str,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        lengths = {"Content-Type": kind, "Content-Length": str(len(content)), "Content-Security-Policy": policy}
        for name, value in {**lengths, **SAFE_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses: requests it cannot read, and methods nobody answers."""
        status = HTTPStatus(code)
        if not hasattr(self, "command"):
            self.command = ""
        self._refuse(Refusal(status, f"{message or status.phrase}."))

    def version_string(self) -> str:
        """Nobody needs to know which Python this is."""
        return "hypersparse"

    def log_message(self, *_: Any) -> None:
        """The library prints nothing."""


def _no_host(host: str) -> OptionError:
    return OptionError(f"`--host` is an address of this machine, such as 127.0.0.1; got `{host}`.")

"""A real browser for tests: headless Chromium, driven by Playwright. The fixture `browser` stands in conftest.py."""

import base64
import re
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox",  # refuses to run as root with one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NEEDS_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="needs Playwright: pip install 'hypersparse[test]'"),
]


class Seen:
    """A page, and what it complained about or asked the network for; what is not its own is not let through."""

    def __init__(self, browser: Any, address: str, *own: str, **options: object) -> None:
        self._own = own
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.context.route("**/*", lambda route: route.continue_() if self.is_own(route.request.url) else route.abort())
        self.page.goto(address)

    def is_own(self, url: str) -> bool:
        return url.startswith(self._own)

    @property
    def foreign(self) -> list[str]:
        return [url for url in self.requests if not self.is_own(url)]

    def draw(self, stroke: Sequence[tuple[float, float]]) -> None:
        """Draw on the field of a demo page, without lifting the pen; points are in a square from 0 to 1."""
        box = self.page.locator("#pad").bounding_box()
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        self.page.mouse.move(*points[0])
        self.page.mouse.down()
        for point in points[1:]:
            self.page.mouse.move(*point, steps=3)
        self.page.mouse.up()

    def give(
        self, how: str, content: bytes, kind: str = "image/png", *, target: str = "body", name: str = "image"
    ) -> None:
        """Drop or paste a file, as a browser tells the page of it."""
        self.page.evaluate(
            """([how, content, kind, target, name]) => {
                const bytes = Uint8Array.from(atob(content), (one) => one.charCodeAt(0));
                const data = new DataTransfer();
                data.items.add(new File([bytes], name, { type: kind }));
                const options = { bubbles: true, cancelable: true };
                const event = how === "paste"
                    ? new ClipboardEvent("paste", { ...options, clipboardData: data })
                    : new DragEvent(how, { ...options, dataTransfer: data });
                document.querySelector(target).dispatchEvent(event);
            }""",
            [how, base64.b64encode(content).decode(), kind, target, name],
        )

    def says(self, name: str) -> None:
        """Wait until the answer is this class."""
        self.page.locator("#class", has_text=re.compile(f"^{re.escape(name)}$")).wait_for()

    @property
    def too_wide(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

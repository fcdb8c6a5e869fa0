"""A real browser for tests: headless Chromium, driven by Playwright. The fixture `browser` stands in conftest.py."""

import shutil
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

    @property
    def too_wide(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

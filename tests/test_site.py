"""The documentation site builds without a warning, and its search works from a folder, in a real browser."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser import NEEDS_BROWSER, Seen

ROOT = Path(__file__).resolve().parents[1]
pytest.importorskip("mkdocs", reason="needs mkdocs-material: pip install 'hypersparse[docs]'")
pytestmark = [pytest.mark.slow, *NEEDS_BROWSER]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # about a successor of mkdocs
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    return folder


def test_search_finds_a_page_without_a_server(site: Path, browser: Any) -> None:
    own = site.as_uri()
    seen = Seen(browser, f"{own}/index.html", own, viewport={"width": 1280, "height": 900})
    seen.page.locator("[data-md-component=search-query]").click()
    seen.page.locator(".md-search-result__meta", has_text="Type to start searching").wait_for()  # the index is there
    seen.page.keyboard.type("exploitation")
    seen.page.wait_for_selector(".md-search-result__item")
    assert "art.html" in (seen.page.locator(".md-search-result__link").first.get_attribute("href") or "")
    assert not seen.complaints
    assert not seen.foreign


@pytest.mark.parametrize(
    "page", ["index", "start", "tutorial", "faq", "reference/python", "reference/command-line", "reproduction"]
)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_a_phone_and_a_desktop(site: Path, browser: Any, page: str, width: int) -> None:
    own = site.as_uri()
    seen = Seen(browser, f"{own}/{page}.html", own, viewport={"width": width, "height": 900}, color_scheme="dark")
    assert seen.page.locator("body").get_attribute("data-md-color-scheme") == "slate"
    assert seen.too_wide <= 0
    assert not seen.complaints
    assert not seen.foreign


@pytest.mark.parametrize("page", ["comparison", "microcontroller", "architectures", "art", "benchmarks/2026-11-19-zoo"])
def test_tables_show_all_columns_on_a_desktop(site: Path, browser: Any, page: str) -> None:
    own = site.as_uri()
    seen = Seen(browser, f"{own}/{page}.html", own, viewport={"width": 1280, "height": 900})
    seen.page.wait_for_selector(".md-typeset__scrollwrap")
    hidden = "each => each.map(wrap => wrap.scrollWidth - wrap.clientWidth)"
    assert max(seen.page.locator(".md-typeset__scrollwrap").evaluate_all(hidden)) <= 0


def test_sentences_in_tables_get_room_on_a_phone(site: Path, browser: Any) -> None:
    own = site.as_uri()
    seen = Seen(browser, f"{own}/reproduction.html", own, viewport={"width": 390, "height": 900})
    cell = seen.page.locator("td", has_text="The pruned copy is as accurate as the dense network").first
    assert (cell.bounding_box() or {})["width"] >= 170


def test_numbers_stay_with_their_units(site: Path) -> None:
    text = (site / "microcontroller.html").read_text()
    assert "214\N{NO-BREAK SPACE}kB" in text
    assert "at 98\N{NO-BREAK SPACE}% sparsity" in text.replace("\n", " ")
    assert "<code>digits.c: 43,860 bytes, 1,517 weights" in text  # blocks of code stay as they are
    assert "98.89 % of them" in text


def test_figures_have_one_scale_and_open_in_full_size(site: Path) -> None:
    text = (site / "reproduction.html").read_text()
    whole, half = ("reproduction/headline.png", 742), ("reproduction/effective-tinyimagenet.png", 371)
    for name, width in (whole, half):  # 7 and 3.5 inches
        assert re.search(rf'<a href="{name}"><img [^>]*src="{name}" width="{width}"', text)


def test_the_menu_has_every_page_of_results(site: Path, browser: Any) -> None:
    own = site.as_uri()
    seen = Seen(browser, f"{own}/speed.html", own, viewport={"width": 1280, "height": 900})
    seen.page.locator(".md-sidebar--primary").get_by_role("link", name="Benchmarks").click()
    seen.page.locator("h1", has_text="Benchmarks").wait_for()


def test_the_tutorial_shows_the_page_that_it_writes(site: Path, browser: Any) -> None:
    own = site.as_uri()
    seen = Seen(browser, f"{own}/tutorial.html", own, viewport={"width": 1280, "height": 900})
    shown = seen.page.frame_locator("article iframe")
    shown.locator("h1", has_text="digits-resnet8-0.98").wait_for()
    assert not seen.complaints
    assert not seen.foreign

"""The page in a real browser: headless Chromium, driven by Playwright."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypersparse.analysis.report import page
from hypersparse.analysis.report.page import write
from hypersparse.runs.store import RunStore
from hypersparse.storage.record import write_record
from hypersparse.storage.run_folder import RunFolder
from tests.analysis.report.made import make_run
from tests.analysis.report.test_page import HOSTILE
from tests.browser import NEEDS_BROWSER
from tests.browser import Seen as TerminalView
from tests.stored import whole_record

ASSETS = Path(page.__file__).with_name("assets")
RUNS = 50  # on the page of many
pytestmark = NEEDS_BROWSER


class Seen(TerminalView):
    """A report in a browser."""

    def __init__(self, browser: object, file: Path, **options: object) -> None:
        super().__init__(browser, file.as_uri(), "file:", "data:", "blob:", **options)

    def draw_all(self) -> int:
        """Scroll to each chart, since charts are drawn when they come into sight; returns how many there are."""
        charts = self.page.locator(".canvas")
        for number in range(charts.count()):
            charts.nth(number).scroll_into_view_if_needed()
            charts.nth(number).locator("svg path").first.wait_for(state="attached")
        return charts.count()

    def column(self, table: str, number: int) -> list[str]:
        rows = self.page.locator(f"{table} tbody tr:not([hidden]) > :nth-child({number})")
        return [str(text) for text in rows.all_inner_texts()]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 50 runs: one as long as on CIFAR-10, one unfinished, a dense one; and one that cannot be read."""
    folder = tmp_path_factory.mktemp("many")
    for place, method in enumerate(("art", "snip", "grasp", "rigl")):
        for sparsity in (0.9, 0.98, 0.998):
            for seed in range(4):
                long = {"epochs": 272, "layers": 34} if (method, sparsity, seed) == ("art", 0.9, 0) else {}
                last = 0.95 - place / 100 + seed / 1000
                make_run(folder / "runs", method=method, sparsity=sparsity, seed=seed, last=last, **long)
    make_run(folder / "runs", method="rigl", sparsity=0.998, seed=9, finished=False)
    make_run(folder / "runs", method="dense", sparsity=None, last=0.97)
    make_run(folder / "runs", method="lth").result_file.write_text("{")
    write(folder / "report.html", list(RunStore(folder / "runs").runs()), title="Fifty runs")
    return folder / "report.html"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    write(folder / "report.html", [make_run(folder / "runs", epochs=40, layers=12)])
    return folder / "report.html"


def test_it_loads_without_complaints_or_requests_and_draws_its_charts(browser: object, many: Path) -> None:
    seen = Seen(browser, many)
    assert seen.draw_all() == 5
    for number in range(5):
        drawing = seen.page.locator(".canvas").nth(number)
        assert drawing.locator("svg path").count() > 20
        assert str(drawing.get_attribute("aria-label")).startswith(("Accuracy over", "Test accuracy over"))
    assert seen.page.locator("#runs-table tbody tr").count() == RUNS
    assert "is damaged" in seen.page.locator(".notice").inner_text()
    assert "art hypersparse, 4 seeds" in seen.page.locator(".cards").inner_text()
    assert seen.complaints == []
    assert seen.foreign == []
    assert seen.requests == [many.as_uri()]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([435, 452], [410, 420, 430, 440, 450, 460, 470, 480]),
        ([20.4, 31.5], [20, 25, 30]),
        ([90, 900], [100, 300, 1000]),
        ([1e-4, 1], [1e-4, 1e-3, 1e-2, 0.1, 1]),
    ],
)
def test_a_logarithmic_axis_has_three_ticks_or_more(
    browser: object, one: Path, values: list[float], ticks: list[float]
) -> None:
    code = "".join((ASSETS / name).read_text() for name in ("formats.js", "chart_style.js"))
    found = Seen(browser, one).page.evaluate(
        f"(() => {{ {code}; return logarithmic({values}).axisLabel.customValues }})()"
    )
    assert found == pytest.approx(ticks)


def test_a_request_would_be_noticed_and_the_policy_would_stop_it(browser: object, many: Path) -> None:
    seen = Seen(browser, many)
    seen.page.evaluate("fetch('https://example.org/').catch(() => null)")
    seen.page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))"
    )
    assert any("Content Security Policy" in words for words in seen.complaints)
    assert seen.page.evaluate("window.ran") is None


def test_tables_are_sorted_by_their_heads(browser: object, many: Path) -> None:
    seen = Seen(browser, many)
    head = seen.page.locator("#runs-table th", has_text="last %")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    place = 1 + seen.page.locator("#runs-table thead th").all_inner_texts().index(head.inner_text())
    shown = [float(text) for text in seen.column("#runs-table", place) if text]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == RUNS - 1
    assert seen.column("#runs-table", place)[-1] == ""  # the dense run has no sparse accuracy: it stands last
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(text) for text in seen.column("#runs-table", place) if text] == sorted(shown)
    assert seen.column("#runs-table", place)[-1] == ""
    assert seen.page.locator("#runs-table [aria-sort]").count() == 1


def test_filters_leave_what_fits(browser: object, many: Path) -> None:
    seen = Seen(browser, many)
    seen.page.get_by_label("Method", exact=True).select_option("snip")
    seen.page.get_by_label("Sparsity", exact=True).select_option(label="98\u00a0%")
    assert seen.page.locator(".found").inner_text() == f"4 of {RUNS} runs"
    assert set(seen.column("#runs-table", 2)) == {"snip"}
    curves = seen.page.locator("#runs figure")
    assert "The 4 runs in the table." in curves.inner_text()
    assert curves.get_by_role("button", name="art").count() == 0
    seen.page.get_by_label("Search", exact=True).fill("seed-3")
    assert len(seen.column("#runs-table", 1)) == 1
    seen.page.get_by_role("button", name="All", exact=True).click()
    assert seen.page.locator(".found").inner_text() == f"{RUNS} runs"
    seen.page.get_by_label("State", exact=True).select_option("stopped")
    assert len(seen.column("#runs-table", 1)) == 1


def test_a_run_has_a_page_with_its_curves_and_where_it_came_from(browser: object, many: Path) -> None:
    seen = Seen(browser, many)
    seen.page.get_by_label("Search", exact=True).fill("art 0.9- seed-0")
    seen.page.locator("#runs-table tbody tr:not([hidden]) a").first.click()
    seen.page.locator("#run-title").wait_for()
    assert "seed 0" in seen.page.locator("#run-title").inner_text()
    titles = seen.page.locator("figure h4").all_inner_texts()
    assert titles == ["Accuracy", "Loss", "Penalty", "Weights per layer"]
    assert seen.draw_all() == 4
    text = seen.page.locator("main").inner_text()
    for words in ("pre-train", "regularize", "fine-tune", "best 96.00 % in epoch 269", "picked on the test set"):
        assert words in text.replace("\u00a0", " ")
    assert "[method]" in seen.page.locator("pre").inner_text()
    assert seen.page.locator(".facts").inner_text().count("2.13.0") == 1
    seen.page.get_by_role("link", name="next").click()
    seen.page.locator("#run-title", has_text="seed 1").wait_for()
    seen.page.get_by_role("link", name="All runs").click()
    seen.page.locator("#runs-table").wait_for()
    assert seen.complaints == []


def test_many_classes_are_all_named_in_the_order_of_their_accuracy(browser: object, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    right, total = np.roll(np.arange(100), 50)[None], np.full(100, 100)
    write_record(run.record_file, whole_record(class_correct=right, class_total=total))
    run.write_result({**(run.result() or {}), "classes": [f"a_class_{number}" for number in range(100)]})
    write(tmp_path / "report.html", [run])
    seen = Seen(browser, tmp_path / "report.html")
    seen.draw_all()
    figure = seen.page.locator("figure.wide", has=seen.page.get_by_role("heading", name="Accuracy by class"))
    assert "from 0.00 % (a class 50) to 99.00 % (a class 49)" in figure.inner_text().replace("\u00a0", " ")
    names = [text for text in ticks(seen.page, "Accuracy by class") if text.startswith("a class")]
    assert len(names) > 50
    assert names[:2] == ["a class 49", "a class 48"]
    figure.locator("summary").click()
    assert soon(lambda: figure.locator("table tbody tr").count() == 100)
    assert figure.locator("tbody tr").first.inner_text().split()[:4] == ["a", "class", "49", "99"]
    assert seen.complaints == []


def test_an_unfinished_run_is_shown_as_unfinished(browser: object, many: Path) -> None:
    seen = Seen(browser, many)
    seen.page.get_by_label("State", exact=True).select_option("stopped")
    seen.page.locator("#runs-table tbody tr:not([hidden]) a").click()
    seen.page.locator("#run-title").wait_for()
    assert "stopped in fine-tune at epoch 7" in seen.page.locator(".run-head").inner_text()
    assert seen.draw_all() == 3  # which layers its weights are in is not known yet
    assert seen.complaints == []


def test_hovering_tells_exact_values_and_the_legend_hides_lines(browser: object, one: Path) -> None:
    seen = Seen(browser, one)
    seen.draw_all()
    figure = seen.page.locator("figure", has=seen.page.get_by_role("heading", name="Loss"))
    chart = figure.locator(".canvas")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    seen.page.mouse.move(box["x"] + 53, box["y"] + box["height"] / 2)
    tip = figure.locator(".tip")
    tip.wait_for()
    assert "epoch 0 · pre-train" in tip.inner_text()
    assert "2.3123" in tip.inner_text()
    seen.page.mouse.move(0, 0)
    before = chart.locator("svg path").count()
    button = figure.get_by_role("button", name="learning rate")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert chart.locator("svg path").count() < before
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert chart.locator("svg path").count() >= before


def ticks(page: Any, title: str) -> list[str]:
    figure = page.locator("figure", has=page.get_by_role("heading", name=title))
    return [str(text) for text in figure.locator(".canvas svg text").all_text_contents()]


def soon(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether that comes true; on a busy machine the page takes a moment."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def test_zoom_by_buttons_by_keys_and_by_dragging(browser: object, one: Path) -> None:
    seen = Seen(browser, one)
    seen.draw_all()
    figure = seen.page.locator("figure", has=seen.page.get_by_role("heading", name="Loss"))
    whole = ticks(seen.page, "Loss")
    figure.get_by_role("button", name="Zoom in").click()
    assert soon(lambda: ticks(seen.page, "Loss") != whole)
    closer = ticks(seen.page, "Loss")
    seen.page.locator("#theme").click()
    assert soon(lambda: ticks(seen.page, "Loss") == closer)
    figure.get_by_role("button", name="Show all").click()
    assert soon(lambda: ticks(seen.page, "Loss") == whole)
    figure.locator(".chart").focus()
    seen.page.keyboard.press("+")
    assert soon(lambda: ticks(seen.page, "Loss") == closer)
    seen.page.keyboard.press("0")
    assert soon(lambda: ticks(seen.page, "Loss") == whole)
    box = figure.locator(".canvas").bounding_box()
    assert box is not None
    seen.page.mouse.move(box["x"] + 150, box["y"] + 150)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 250, box["y"] + 160, steps=5)
    seen.page.mouse.up()
    assert soon(lambda: ticks(seen.page, "Loss") != whole)
    assert seen.complaints == []


def test_arrow_keys_read_a_chart_aloud_and_its_data_are_a_table(browser: object, one: Path) -> None:
    seen = Seen(browser, one)
    figure = seen.page.locator("figure", has=seen.page.get_by_role("heading", name="Accuracy", exact=True))
    figure.locator(".chart").focus()
    seen.page.keyboard.press("ArrowRight")
    said = seen.page.locator("#said").inner_text().replace("\u00a0", " ")
    assert said.startswith("epoch 0 · pre-train: test 80.00 %, train 76.54 %")
    seen.page.keyboard.press("End")
    assert "epoch 39 · fine-tune: test 90.00 %" in seen.page.locator("#said").inner_text().replace("\u00a0", " ")
    assert figure.locator("table").count() == 0
    figure.locator("summary").click()
    assert soon(lambda: figure.locator("table tbody tr").count() == 40)
    assert figure.locator("table caption").count() == 1
    assert figure.locator("tbody tr").last.inner_text().split()[:2] == ["39", "fine-tune"]


def test_dark_and_light(browser: object, one: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('.canvas svg text').getAttribute('fill')"
    seen = Seen(browser, one, color_scheme="light")
    seen.draw_all()
    light = seen.page.evaluate(background), seen.page.evaluate(ink)
    seen.page.locator("#theme").click()
    dark = seen.page.evaluate(background), seen.page.evaluate(ink)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    by_system = Seen(browser, one, color_scheme="dark")
    by_system.draw_all()
    assert (by_system.page.evaluate(background), by_system.page.evaluate(ink)) == dark
    by_system.page.locator("#theme").click()
    assert (by_system.page.evaluate(background), by_system.page.evaluate(ink)) == light


def test_the_keyboard_reaches_the_controls(browser: object, many: Path) -> None:
    seen = Seen(browser, many)
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    reached: set[str] = set()
    for _ in range(120):
        seen.page.keyboard.press("Tab")
        place = "document.activeElement"
        reached.add(str(seen.page.evaluate(f"{place}.id || {place}.className || {place}.tagName")))
    assert {"theme", "print", "sort", "key", "tool", "chart", "scroll", "filter-text", "filter-method"} <= reached
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert seen.page.evaluate(outline) == "solid"
    unnamed = seen.page.evaluate(
        "[...document.querySelectorAll('button, input, select, a')]"
        ".filter((e) => !(e.textContent || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML)"
    )
    assert unnamed == []


@pytest.mark.parametrize("which", ["one", "many"])
def test_a_phone_needs_no_sideways_scrolling(browser: object, which: str, request: pytest.FixtureRequest) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    seen = Seen(browser, request.getfixturevalue(which), **phone)
    seen.draw_all()
    assert seen.too_wide == 0
    if which == "many":
        seen.page.locator("#runs-table a").first.click()
        seen.page.locator("#run-title").wait_for()
        seen.draw_all()
        assert seen.too_wide == 0
    assert seen.complaints == []


def test_long_options_do_not_widen_a_phones_page(browser: object, tmp_path: Path) -> None:
    tables = [{"method": {"max_regularized_epochs": limit}} for limit in (101, 102)]
    write(tmp_path / "report.html", [make_run(tmp_path / "runs", tables=table) for table in tables])
    seen = Seen(browser, tmp_path / "report.html", viewport={"width": 360, "height": 740}, is_mobile=True)
    assert "max_regularized_epochs=10" in seen.page.locator(".number-card").all_inner_texts()[1]
    wide = "[...document.querySelectorAll('.number-card')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert seen.page.evaluate(wide) == 0


def test_it_prints_on_white_with_all_charts(browser: object, many: Path) -> None:
    seen = Seen(browser, many, color_scheme="dark")
    seen.page.evaluate(
        "window.addEventListener('beforeprint', () => (window.drawn = document.querySelectorAll('.canvas svg').length))"
    )
    assert len(seen.page.pdf(format="A4")) > 10_000
    assert seen.page.evaluate("window.drawn") == 5
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not seen.page.locator(".tools").first.is_visible()


def test_a_hostile_name_is_only_shown(browser: object, tmp_path: Path) -> None:
    runs: list[RunFolder] = [make_run(tmp_path / "runs", label=HOSTILE, seed=seed) for seed in range(2)]
    write(tmp_path / "report.html", runs, title="</title></script><script>window.hurt = 1</script><b>")
    seen = Seen(browser, tmp_path / "report.html")
    assert seen.page.locator("h1").inner_text() == "</title></script><script>window.hurt = 1</script><b>"
    seen.page.locator("#runs-table a").first.click()
    assert HOSTILE in seen.page.locator("#run-title").inner_text()
    seen.draw_all()
    assert seen.page.locator("b[onclick]").count() == 0
    assert seen.page.evaluate("window.hurt") is None
    assert seen.complaints == []

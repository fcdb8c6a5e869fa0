"""The page in a real browser: drawing, dropping, choosing, pasting, by mouse, finger and keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hypersparse.serve import connection
from hypersparse.serve.network import Served
from hypersparse.serve.server import MOST_BYTES, Server
from tests.browser import NEEDS_BROWSER
from tests.browser import Seen as SeenPage
from tests.serve.made import STROKES, drawing, file_of, linear, served

pytestmark = NEEDS_BROWSER
HOSTILE = "<b onclick=alert(1)>-</script><!--"
COLOURS = ("red", "light_green", HOSTILE)


class Seen(SeenPage):
    """The page of a server."""

    def __init__(self, browser: Any, server: Server, **options: object) -> None:
        super().__init__(browser, server.address, server.address, "data:", "blob:", **options)

    def hold(self) -> list[Any]:
        """What is asked from now on, which waits until the test lets it through."""
        held: list[Any] = []
        self.page.route("**/api/predict?*", lambda route: held.append(route))  # it takes no built-in function
        return held

    def wait_for(self, held: list[Any], count: int) -> None:
        for _ in range(200):
            if len(held) >= count:
                return
            self.page.wait_for_timeout(20)
        pytest.fail(f"asked {len(held)} times, not {count}")

    def let_through(self, held: Any) -> None:
        """Let one be answered, and the page take it in."""
        with self.page.expect_event("requestfinished"):
            held.continue_()
        self.page.wait_for_timeout(200)

    def decode_late(self) -> None:
        """Pictures are decoded when the test calls `late[n]()`."""
        self.page.evaluate(
            """() => {
                const real = window.createImageBitmap.bind(window);
                window.late = [];
                window.createImageBitmap = (file) =>
                    new Promise((resolve) => window.late.push(() => real(file).then(resolve)));
            }"""
        )

    def decode(self, number: int) -> None:
        self.page.evaluate("number => window.late[number]()", number)
        self.page.wait_for_timeout(100)

    def colour(self) -> list[int]:
        """Of the middle of the field."""
        found = self.page.evaluate(
            """() => {
                const copy = new OffscreenCanvas(1, 1).getContext("2d"); // reading the field itself makes Chromium warn
                copy.drawImage(document.getElementById("pad"), -160, -160);
                return [...copy.getImageData(0, 0, 1, 1).data];
            }"""
        )
        return list(found)[:3]

    def fails(self) -> str:
        failed = self.page.locator(".failed")
        failed.wait_for()
        return str(failed.inner_text())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Three networks: digits; the strongest of three colours; and one that knows nothing of its images."""
    about = {"classes": list(COLOURS), "normalisation": {"scale": 255, "mean": [0.0] * 3, "std": [1.0] * 3}}
    colours = linear((3, 4, 4), 3, **about)
    weight = colours.tensors["head.weight"]
    weight[...] = np.kron(np.eye(3), np.ones(16))
    networks = [served(), Served(HOSTILE, colours, 321), Served("bare.hsp", linear((1, 28, 28)), 99)]
    with Server(networks).running() as started:
        yield started


@pytest.mark.parametrize("digit", STROKES)
def test_a_drawn_digit_is_told(browser: Any, server: Server, digit: int) -> None:
    seen = Seen(browser, server)
    assert "Draw something" in seen.page.locator(".verdict").inner_text()
    seen.draw(STROKES[digit])
    seen.says(str(digit))
    assert seen.page.locator(".bars li").count() == 5
    assert "sure" in seen.page.locator(".verdict").inner_text()
    table = seen.page.locator(".compare").inner_text()
    for words in ("1 thread", "22.3 kB", "3,854", "77,072", "95.0 % zeros"):
        assert words in table
    assert table.count("µs") + table.count("ms") == 2
    assert seen.page.locator(".layers tbody tr").count() == 10
    assert "126\t144\t87.5 %" in seen.page.locator(".layers tbody tr").first.inner_text()
    assert seen.page.locator("#said").inner_text().startswith(f"{digit}, ")
    assert seen.complaints == []
    assert seen.foreign == []


def test_a_pause_that_the_server_does_not_wait_for(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    with Server([served()]).running() as hasty:
        seen = Seen(browser, hasty)
        seen.draw(STROKES[2])
        seen.says("2")
        seen.page.wait_for_timeout(1000)
        seen.page.locator("#clear").click()
        seen.draw(STROKES[0])
        seen.says("0")
    assert seen.complaints == []


def test_a_server_with_too_much_to_do_is_said(browser: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(browser, server)
    with monkeypatch.context() as full:
        full.setattr(connection, "MOST_WAITING", 0)
        seen.draw(STROKES[2])
        assert "too much to do" in seen.fails()
    seen.draw(STROKES[0])
    seen.page.locator("#class").wait_for()
    assert seen.page.locator(".failed").is_hidden()


def test_clear_and_another_digit(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    seen.draw(STROKES[2])
    seen.says("2")
    seen.page.locator("#clear").click()
    assert "Draw something" in seen.page.locator(".verdict").inner_text()
    seen.draw(STROKES[0])
    seen.says("0")
    assert seen.complaints == []


def test_clear_is_not_undone_by_an_answer_on_its_way(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    held = seen.hold()
    seen.draw(STROKES[2])
    seen.wait_for(held, 1)
    seen.let_through(held[0])  # of the beginning; what is asked next is of all that was drawn
    seen.wait_for(held, 2)
    seen.page.locator("#clear").click()
    seen.let_through(held[1])
    assert "Draw something" in seen.page.locator(".verdict").inner_text()
    assert seen.page.locator("#said").inner_text() == "Cleared."
    seen.page.unroute("**/api/predict?*")
    seen.draw(STROKES[0])  # is asked about as ever
    seen.says("0")
    assert seen.complaints == []


def test_an_answer_that_fails_after_clear_is_not_told(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    held = seen.hold()
    seen.draw(STROKES[2])
    seen.wait_for(held, 1)
    seen.page.locator("#clear").click()
    with seen.page.expect_event("requestfailed"):
        held[0].abort()
    seen.page.wait_for_timeout(200)
    assert seen.page.locator(".failed").is_hidden()


def test_a_picture_decoded_late_does_not_cover_what_came_after_it(browser: Any, server: Server) -> None:
    red, blue = (file_of(Image.new("RGB", (40, 40), colour)) for colour in ((250, 0, 0), (0, 0, 250)))
    seen = Seen(browser, server)
    seen.page.locator("#network").select_option("1")
    seen.decode_late()
    seen.give("drop", red)
    seen.page.locator("#clear").click()
    seen.decode(0)
    assert seen.colour() == [255, 255, 255]
    seen.give("drop", red)
    seen.give("drop", blue)
    seen.decode(2)
    seen.decode(1)
    assert seen.colour() == [0, 0, 250]
    seen.says(HOSTILE)
    seen.page.locator("#clear").click()
    seen.page.locator("#network").select_option("0")
    seen.give("drop", file_of(drawing(4)))
    seen.draw(STROKES[0])
    drawn = seen.page.evaluate("document.getElementById('pad').toDataURL()")
    seen.decode(3)
    assert seen.page.evaluate("document.getElementById('pad').toDataURL()") == drawn
    seen.says("0")
    assert seen.complaints == []


def test_a_printed_digit_is_dropped_pasted_and_chosen(browser: Any, server: Server, tmp_path: Path) -> None:
    seen = Seen(browser, server)
    seen.give("dragover", file_of(drawing(4)))
    assert "over" in str(seen.page.locator("#input").get_attribute("class"))
    seen.give("drop", file_of(drawing(4)))
    seen.says("4")
    assert "over" not in str(seen.page.locator("#input").get_attribute("class"))
    seen.give("paste", file_of(drawing(2, paper="#334", ink="#fff"), "JPEG"), "image/jpeg")
    seen.says("2")
    printed = Image.new("RGB", (200, 300), "white")
    ImageDraw.Draw(printed).text((100, 150), "5", fill="black", anchor="mm", font_size=220)
    printed.save(tmp_path / "five.webp")
    with seen.page.expect_file_chooser() as chooser:
        seen.page.locator("#choose").click()
    chooser.value.set_files(tmp_path / "five.webp")
    seen.says("5")
    seen.draw(STROKES[0])  # a stroke begins again
    seen.says("0")
    assert seen.complaints == []
    assert seen.foreign == []


def test_colour_images_go_to_a_network_for_them(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    seen.page.locator("#network").select_option("1")
    assert seen.page.locator("#pad").get_attribute("role") == "button"
    seen.give("drop", file_of(Image.new("RGB", (70, 40), (10, 200, 30))))
    seen.says("light green")
    seen.give("drop", file_of(Image.new("RGB", (40, 70), (10, 20, 230))))
    seen.says(HOSTILE)  # a name is only ever text
    assert seen.page.locator("h1").inner_text() == "Sparse networks"
    assert HOSTILE in seen.page.title()
    assert seen.page.locator("main b").count() == 0
    seen.page.locator("#clear").click()
    seen.page.locator("#network").select_option("0")
    assert seen.page.locator("#pad").get_attribute("role") == "application"
    seen.page.locator("#network").select_option("2")
    assert "does not name its classes" in seen.page.locator(".notice").inner_text()
    assert seen.complaints == []


def test_a_sample_answers_at_once(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    samples = seen.page.locator(".sample")
    for digit in ("2", "3", "5", "8"):
        seen.page.get_by_role("button", name=f"Sample: {digit}").click()
        seen.says(digit)
    assert samples.count() == 4
    seen.page.locator("#network").select_option("1")
    assert samples.count() > 10  # none of its classes is among them, so all are offered
    seen.page.get_by_role("button", name="Sample: frog").click()
    seen.page.locator("#class").wait_for()
    assert seen.complaints == []
    assert seen.foreign == []


def test_what_cannot_be_used_is_one_sentence(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    seen.give("drop", b"no image at all", "text/plain")
    assert "not a whole image" in seen.fails()
    seen.give("drop", file_of(Image.new("RGB", (20, 20), "white")))
    seen.page.locator(".failed", has_text="Nothing is drawn").wait_for()
    before = len(seen.requests)
    seen.page.evaluate(
        """size => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(size)], "large.png", { type: "image/png" }));
            document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, dataTransfer: data }));
        }""",
        MOST_BYTES + 1,
    )
    seen.page.locator(".failed", has_text="10 MiB at most").wait_for()
    assert len(seen.requests) == before
    seen.draw(STROKES[2])
    seen.says("2")
    assert seen.page.locator(".failed").is_hidden()
    assert [line for line in seen.complaints if "status of 400" not in line] == []  # the browser's own words


def test_a_server_that_is_gone_is_said(browser: Any) -> None:
    with Server([served()]).running() as short:
        seen = Seen(browser, short)
        seen.draw(STROKES[2])
        seen.says("2")
    seen.draw(STROKES[0])
    assert "is it still running?" in seen.fails()


def test_keys_alone_draw_a_line(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    for _ in range(12):
        seen.page.keyboard.press("Tab")
        if seen.page.evaluate("document.activeElement.id") == "pad":
            break
    for _ in range(10):
        seen.page.keyboard.press("ArrowUp")
    assert "Draw something" in seen.page.locator(".verdict").inner_text()
    seen.page.keyboard.press("Space")
    for _ in range(20):
        seen.page.keyboard.press("ArrowDown")
    seen.says("1")
    assert seen.page.locator(".tip-of-pen.down").is_visible()
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.id") == "choose"
    assert seen.page.locator(".tip-of-pen").is_hidden()
    assert seen.complaints == []


def test_light_dark_and_phone(browser: Any, server: Server) -> None:
    bright = []
    for scheme in ("light", "dark"):
        seen = Seen(browser, server, color_scheme=scheme)
        seen.draw(STROKES[2])
        seen.says("2")
        colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        bright.append(sum(int(part) for part in colour[4:-1].split(",")) > 3 * 127)
        seen.page.locator("#theme").click()
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != colour
    assert bright == [True, False]
    phone = Seen(browser, server, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    assert phone.too_wide <= 0
    box = phone.page.locator("#pad").bounding_box()
    phone.page.touchscreen.tap(box["x"] + 50, box["y"] + 50)  # a dot is drawn, and something is said of it
    phone.page.locator("#class").wait_for()
    assert phone.too_wide <= 0
    phone.page.locator("#network").select_option("1")
    assert phone.too_wide <= 0
    assert phone.complaints == []


def test_a_foreign_request_would_be_noticed_and_the_policy_would_stop_it(browser: Any, server: Server) -> None:
    seen = Seen(browser, server)
    seen.page.evaluate("fetch('https://example.org/').catch(() => null)")
    script = "Object.assign(document.createElement('script'), { textContent: 'window.x = 1' })"
    seen.page.evaluate(f"document.body.append({script})")
    assert seen.page.evaluate("window.x") is None
    assert any("Content Security Policy" in line for line in seen.complaints)
    assert seen.foreign == []

"""Exported pages in a real browser, opened from disk: predictions, drawing, dropping, samples, camera."""

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import special

from hypersparse.export.input_normalization import Normalisation
from hypersparse.export.sparse_file import load_graph
from hypersparse.export.web.modules import bundle
from hypersparse.export.web.page import save_page
from hypersparse.zoo.find_network import in_zoo
from hypersparse_runtime import SparseModel
from hypersparse_runtime.file import pack
from tests.browser import NEEDS_BROWSER, Seen
from tests.modern_architectures import ARCHITECTURES
from tests.runtime.test_modern_architectures import inputs, traced
from tests.serve.made import DIGITS, STROKES, drawing, file_of, linear

pytestmark = NEEDS_BROWSER
COLOURS = "cifar10-resnet32-0.99"
CAMERA = """() => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
    const context = canvas.getContext("2d");
    const paint = () => {
        context.fillStyle = "#2060c0";
        context.fillRect(0, 0, 64, 48);
        requestAnimationFrame(paint);
    };
    paint();
    window.stopped = 0;
    navigator.mediaDevices.getUserMedia = async () => {
        const stream = canvas.captureStream();
        for (const track of stream.getTracks()) {
            const stop = track.stop.bind(track);
            track.stop = () => { window.stopped += 1; stop(); };
        }
        return stream;
    };
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page of digits and one of colour images."""
    folder = tmp_path_factory.mktemp("pages")
    save_page(load_graph(DIGITS), folder / "digits.html")
    save_page(load_graph(file_in_zoo(COLOURS)), folder / "colours.html")
    return folder


def file_in_zoo(name: str) -> Path:
    path = in_zoo(name)
    assert path is not None
    return path


def opened(browser: Any, page: Path, **options: object) -> Seen:
    seen = Seen(browser, page.as_uri(), "file:", "data:", "blob:", **options)
    seen.page.locator(".layers h2").wait_for()
    return seen


def outputs_in_a_page(browser: Any, folder: Path, network: bytes, inputs: np.ndarray) -> list[float]:
    """What the runtime gives in a page that holds nothing else."""
    (folder / "empty.html").write_text(f"<script>{bundle()}\nwindow.SparseModel = SparseModel;</script>")
    seen = Seen(browser, (folder / "empty.html").as_uri(), "file:")
    outputs: list[float] = seen.page.evaluate(
        """async ([network, inputs]) => {
            const bytes = Uint8Array.from(atob(network), (one) => one.charCodeAt(0));
            return [...(await SparseModel.load(bytes)).run(Float32Array.from(inputs))];
        }""",
        [base64.b64encode(network).decode(), inputs.ravel().tolist()],
    )
    assert seen.complaints == []
    return outputs


@pytest.mark.parametrize("name", [COLOURS, "cifar10-vgg19-0.998", "digits-resnet8-0.98"])
def test_outputs_are_those_of_the_native_runtime(browser: Any, name: str, tmp_path: Path) -> None:
    model = SparseModel.load(file_in_zoo(name), threads=1, engine="hypersparse")
    images = np.random.default_rng(0).standard_normal((4, *model.input_shape)).astype(np.float32)
    outputs = outputs_in_a_page(browser, tmp_path, file_in_zoo(name).read_bytes(), images)
    np.testing.assert_allclose(outputs, model(images).ravel(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_gives_the_native_outputs(browser: Any, name: str, tmp_path: Path) -> None:
    model, given = SparseModel(traced(name), threads=1, engine="hypersparse"), inputs(name).numpy().astype(np.float32)
    wanted = model(given).ravel()
    outputs = outputs_in_a_page(browser, tmp_path, pack(traced(name)), given)
    np.testing.assert_allclose(outputs, wanted, atol=1e-5 * np.abs(wanted).max(), rtol=0)


def test_a_page_of_a_mobile_net(browser: Any, tmp_path: Path) -> None:
    save_page(traced("MobileNetV3"), tmp_path / "mobile.html")
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    seen = opened(browser, tmp_path / "mobile.html", **phone)
    seen.page.locator(".work td", has_text=re.compile("[µm]s$")).first.wait_for()
    assert seen.page.locator(".bars .percent").count() == 4
    table = seen.page.locator(".work")
    assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    assert seen.too_wide <= 0
    assert seen.complaints == []


def test_a_dropped_image_has_the_shares_of_the_native_runtime(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "colours.html")
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    model = SparseModel.load(file_in_zoo(COLOURS), threads=1, engine="hypersparse")
    normalize = Normalisation.read(model.about, 3)
    assert normalize is not None
    shares = special.softmax(model(normalize(pixels.transpose(2, 0, 1)[None]))[0])
    seen.give("drop", file_of(Image.fromarray(pixels)))
    seen.says(model.about["classes"][int(shares.argmax())])
    shown = [float(words.rstrip(" %")) for words in seen.page.locator(".bars .percent").all_inner_texts()]
    assert shown == pytest.approx(sorted(100 * shares)[:-6:-1], abs=0.06)
    assert seen.complaints == []


def test_digits_are_drawn_on_a_page_from_disk(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "digits.html")
    assert "Draw something" in seen.page.locator(".verdict").inner_text()
    for digit in STROKES:
        seen.page.locator("#clear").click()
        seen.draw(STROKES[digit])
        seen.says(str(digit))
    assert "Computed on this device in" in seen.page.locator(".verdict").inner_text()
    facts = seen.page.locator(".facts").inner_text()
    for words in ("22.3 kB", "3,854", "77,072", "95.0 % zeros", "images a second"):
        assert words in facts
    seen.page.locator(".work td", has_text=re.compile("[µm]s$")).first.wait_for()
    assert seen.page.locator(".work tbody tr").count() == 10
    assert seen.complaints == []
    assert seen.foreign == []


def test_samples_are_told_at_once(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "colours.html")
    seen.says("airplane")  # the first is shown without a click
    for name in ("automobile", "ship", "frog", "cat"):
        seen.page.get_by_role("button", name=f"Sample: {name}").click()
        seen.says(name)
    digits = opened(browser, pages / "digits.html")
    for digit in ("2", "3", "5", "8"):
        digits.page.get_by_role("button", name=f"Sample: {digit}").click()
        digits.says(digit)
    assert seen.complaints == digits.complaints == []
    assert seen.foreign == digits.foreign == []


def test_a_printed_digit_is_dropped(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "digits.html")
    seen.give("drop", file_of(drawing(4, paper="#334", ink="#fff")))
    seen.says("4")
    seen.draw(STROKES[0])  # a stroke begins again
    seen.says("0")


def test_another_network_is_dropped(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "digits.html")
    seen.give("drop", file_in_zoo("cifar10-resnet32-0.998").read_bytes(), "", name="other.hsp")
    seen.says("airplane")
    assert seen.page.locator("h1").inner_text() == "other.hsp"
    assert seen.page.locator("#pad").get_attribute("role") == "button"
    assert seen.complaints == []


def test_what_cannot_be_used_is_one_sentence(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "digits.html")
    failed = seen.page.locator(".failed")
    seen.give("drop", b"no image at all")
    seen.page.locator(".failed", has_text="not a whole image").wait_for()
    damaged = bytearray(DIGITS.read_bytes())
    damaged[-9] ^= 1
    seen.give("drop", bytes(damaged), "", name="damaged.hsp")
    seen.page.locator(
        ".failed", has_text="not a whole .hsp file (its bytes are not those that were written)"
    ).wait_for()
    seen.give("drop", file_of(Image.new("RGB", (20, 20), "white")))
    seen.page.locator(".failed", has_text="Nothing is drawn").wait_for()
    seen.draw(STROKES[2])
    seen.says("2")
    assert failed.is_hidden()
    assert seen.complaints == []


def test_a_file_that_says_nothing_of_itself_is_shown_with_notes(browser: Any, tmp_path: Path) -> None:
    save_page(linear((1, 28, 28), 3), tmp_path / "bare.html")
    seen = opened(browser, tmp_path / "bare.html")
    assert "does not name its classes" in seen.page.locator(".notice").inner_text()
    seen.draw(STROKES[2])
    seen.says("0")


def test_the_camera_is_followed_until_it_is_stopped(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "colours.html")
    seen.says("airplane")
    seen.page.evaluate(CAMERA)
    seen.page.locator("#camera").click()
    seen.page.locator("#camera.on").wait_for()
    seen.page.wait_for_function(
        """() => {
            const copy = new OffscreenCanvas(1, 1).getContext("2d");
            copy.drawImage(document.getElementById("pad"), -160, -160);
            const [red, green, blue] = copy.getImageData(0, 0, 1, 1).data;
            return Math.abs(red - 32) + Math.abs(green - 96) + Math.abs(blue - 192) < 30;
        }"""
    )
    seen.page.locator("#camera").click()
    assert seen.page.evaluate("window.stopped") == 1
    assert seen.page.locator("#camera.on").count() == 0
    assert seen.complaints == []


def test_light_dark_and_phone(browser: Any, pages: Path) -> None:
    bright = []
    for scheme in ("light", "dark"):
        seen = opened(browser, pages / "colours.html", color_scheme=scheme)
        colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        bright.append(sum(int(part) for part in colour[4:-1].split(",")) > 3 * 127)
    assert bright == [True, False]
    phone = opened(
        browser, pages / "colours.html", viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    )
    phone.says("airplane")
    assert phone.too_wide <= 0
    assert phone.complaints == []


def test_the_policy_stops_requests_and_foreign_scripts(browser: Any, pages: Path) -> None:
    seen = opened(browser, pages / "digits.html")
    seen.page.evaluate("fetch('https://example.org/').catch(() => null)")
    script = "Object.assign(document.createElement('script'), { textContent: 'window.x = 1' })"
    seen.page.evaluate(f"document.body.append({script})")
    assert seen.page.evaluate("window.x") is None
    assert any("Content Security Policy" in line for line in seen.complaints)
    assert seen.foreign == []

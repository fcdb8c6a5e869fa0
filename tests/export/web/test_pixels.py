"""What the page makes of pictures is what `hypersparse serve` makes of them with Pillow."""

import json
import subprocess
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hypersparse.data import digits
from hypersparse.serve.images import ink_of, pixels_of
from tests.export.web.node import NEEDS_NODE, NODE
from tests.serve.made import STROKES, drawing

pytestmark = NEEDS_NODE
SCRIPT = (files("hypersparse.export.web") / "assets" / "pixels.js").read_text(encoding="utf-8")


def in_node(call: str, **values: Any) -> np.ndarray:
    """An array of bytes that the page's functions make; `values` are arrays and numbers by name."""
    given = {name: value.ravel().tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
    script = f"{SCRIPT}\nconst given = {json.dumps(given)};\nconsole.log(JSON.stringify([...{call}]));"
    done = subprocess.run([str(NODE), "-"], input=script, capture_output=True, text=True, check=True, timeout=60)
    return np.array(json.loads(done.stdout), np.uint8)


@pytest.mark.parametrize("digit", STROKES)
@pytest.mark.parametrize("pen", [10, 22])
def test_a_drawn_digit_is_the_same_image(digit: int, pen: int) -> None:
    image = drawing(digit, pen=pen, paper="#334", ink="#fff")
    grey, ink = np.asarray(image.convert("L")), ink_of(image)
    found = in_node("inkOf(Uint8Array.from(given.grey), 320, 320)", grey=grey)
    assert np.abs(found.astype(int) - ink.ravel()).max() <= 1
    small = in_node("fromDrawing(Uint8Array.from(given.ink), 320, 320)", ink=ink)
    assert small.tolist() == digits.from_drawing(ink).ravel().tolist()
    field = in_node("centered(Uint8Array.from(given.ink), [320, 320], 28, 28)", ink=ink)
    assert field.tolist() == pixels_of(image, (1, 28, 28), drawn=True).ravel().tolist()


def test_colours_are_averaged_over_blocks() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 40, 4), dtype=np.uint8)
    pixels[..., 3] = 255
    expected = pixels_of(Image.fromarray(pixels[..., :3]), (3, 6, 10), drawn=False)
    found = in_node("averaged(Uint8Array.from(given.rgba), 3, [6, 10], 4)", rgba=pixels)
    assert np.abs(found.astype(int) - expected.ravel()).max() <= 1

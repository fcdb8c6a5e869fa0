"""Files of images for tests, whose pixels differ from each other."""

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("cat", "dog", "eel", "fox")
DIFFERENT = 100  # in a folder; more repeat these


@cache
def encoded(number: int, size: tuple[int, int] = (12, 12), kind: str = "PNG") -> bytes:
    """A smooth image of its own, which JPEG keeps nearly as it is."""
    across, down = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    random = np.random.default_rng(number)
    slopes, start = random.integers(1, 6, (3, 2)), random.integers(0, 120, 3)
    planes = [start[c] + slopes[c, 0] * across + slopes[c, 1] * down for c in range(3)]
    file = io.BytesIO()
    Image.fromarray(np.stack(planes, 2).clip(0, 255).astype(np.uint8)).save(file, kind)
    return file.getvalue()


def write_folder(
    folder: Path, *, train: int = 40, test: int = 12, size: tuple[int, int] = (12, 12), kind: str = "PNG"
) -> Path:
    """An image folder of four classes."""
    for part, count in (("train", train), ("val", test)):
        for number in range(count):
            place = folder / part / CLASSES[number % len(CLASSES)]
            place.mkdir(parents=True, exist_ok=True)
            content = encoded(number % DIFFERENT + (part == "val") * DIFFERENT, size, kind)
            (place / f"{number:05}.{kind.lower()}").write_bytes(content)
    return folder

"""Bytes of any kind become pixels or one sentence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hypersparse.errors import DataError
from hypersparse.serve.images import FORMATS, MOST_PIXELS, TooManyPixels, as_png, decode, ink_of, pixels_of
from tests.serve.made import bomb, drawing, file_of

RED = Image.new("RGB", (6, 4), (255, 0, 0))


@pytest.mark.parametrize("kind", FORMATS)
def test_what_browsers_show_is_read(kind: str) -> None:
    image = decode(file_of(RED, kind))
    assert (image.mode, image.size) == ("RGB", (6, 4))
    assert np.abs(np.asarray(image, int) - [255, 0, 0]).max() <= 2


@pytest.mark.parametrize("kind", ["TIFF", "PPM", "ICO", "PDF", "EPS"])
def test_other_formats_are_not_even_tried(kind: str) -> None:
    with pytest.raises(DataError, match="not a whole image that can be read; send one of PNG, JPEG"):
        decode(file_of(RED, kind))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_truncated_image_is_one_sentence(kind: str) -> None:
    rng = np.random.default_rng(0)
    whole = file_of(Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)), kind)
    with pytest.raises(DataError, match="not a whole image"):
        decode(whole[: len(whole) // 2])


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff\xe0", b"RIFF", b"BM"]),
)
def test_any_bytes_give_a_sentence(content: bytes, start: bytes) -> None:
    with pytest.raises(DataError):
        decode(start + content)


@pytest.mark.parametrize("size", [(8000, 5001), (10_000, 9_500), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_a_decompression_bomb_is_refused_by_its_header(size: tuple[int, int]) -> None:
    with pytest.raises(TooManyPixels, match="40 million pixels at most"):
        decode(bomb(*size))
    assert size[0] * size[1] > MOST_PIXELS


def test_transparent_is_white_and_photographs_are_turned_upright() -> None:
    clear = Image.new("RGBA", (2, 2), (0, 0, 0, 0))
    assert np.asarray(decode(file_of(clear))).min() == 255
    sideways = Image.new("RGB", (6, 4))
    tags = Image.Exif()
    tags[0x0112] = 6  # turned by a quarter
    assert decode(file_of(sideways, "JPEG", exif=tags)).size == (4, 6)


def test_sixteen_bits_are_said() -> None:
    with pytest.raises(DataError, match="more than 8 bits a pixel"):
        decode(file_of(Image.new("I;16", (4, 4))))


def test_the_middle_is_cut_out_and_resized() -> None:
    wide = Image.new("RGB", (8, 4), "black")
    wide.paste((10, 20, 30), (2, 0, 6, 4))
    pixels = pixels_of(wide, (3, 2, 2), drawn=False)
    assert pixels.dtype == np.uint8
    assert pixels.tolist() == [[[10, 10], [10, 10]], [[20, 20], [20, 20]], [[30, 30], [30, 30]]]
    assert pixels_of(wide, (1, 4, 4), drawn=False).shape == (1, 4, 4)


def test_an_image_of_the_right_size_is_taken_as_it_is() -> None:
    array = np.random.default_rng(0).integers(0, 241, (8, 8), dtype=np.uint8)
    assert (pixels_of(Image.fromarray(array).convert("RGB"), (1, 8, 8), drawn=False)[0] == array).all()


def test_ink_is_what_differs_from_the_paper() -> None:
    black = ink_of(drawing(4)) > 127
    assert (black == (ink_of(drawing(4, paper="black", ink="white")) > 127)).all()
    assert (black == (ink_of(drawing(4, paper="#ccc", ink="#777")) > 127)).mean() > 0.99
    with pytest.raises(DataError, match="Nothing is drawn"):
        ink_of(Image.new("RGB", (20, 20), "grey"))


def test_other_drawings_are_centred_by_their_mass() -> None:
    image = Image.new("RGB", (100, 100), "white")
    image.paste("black", (0, 60, 40, 100))  # a square in a corner
    pixels = pixels_of(image, (1, 28, 28), drawn=True)[0]
    rows, columns = np.nonzero(pixels)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (4, 23, 4, 23)
    assert pixels[14, 14] == 255
    assert (pixels_of(image, (1, 28, 28), drawn=True, dark_on_light=True)[0] == 255 - pixels).all()


@pytest.mark.parametrize("line", [(160, 0, 161, 320), (0, 160, 320, 161)])
def test_a_thin_line_stays_one(line: tuple[int, int, int, int]) -> None:
    image = Image.new("RGB", (320, 320), "white")
    image.paste("black", line)
    pixels = pixels_of(image, (1, 28, 28), drawn=True)[0]
    rows, columns = np.nonzero(pixels)
    assert sorted((np.ptp(rows) + 1, np.ptp(columns) + 1)) == [1, 20]
    assert (pixels[rows, columns] == 255).all()


def test_pixels_come_back_as_a_picture() -> None:
    for shape in ((1, 3, 5), (3, 4, 2)):
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        assert (pixels_of(decode(as_png(pixels)), shape, drawn=False) == pixels).all()

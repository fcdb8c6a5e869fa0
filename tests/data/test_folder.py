import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hypersparse.data import folder
from hypersparse.errors import DataError, OptionError


def write(path: Path, color: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (4, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    write(tmp_path / "train/dog/b.png", (0, 0, 0))
    write(tmp_path / "train/dog/a.bmp", (255, 0, 51))
    write(tmp_path / "train/cat/z.PNG", (0, 0, 0))
    write(tmp_path / "val/dog/c.webp", (0, 0, 0))
    (tmp_path / "train/dog/notes.txt").write_text("not an image")
    (tmp_path / "train/dog/._a.png").write_bytes(b"what macOS leaves behind")
    return tmp_path


def test_classes_are_folders_and_everything_is_sorted(images: Path) -> None:
    data = folder.read(images)
    assert (data.name, data.classes, data.shape) == (images.name, ("cat", "dog"), (3, 4, 4))
    assert data.train.labels.tolist() == [0, 1, 1]
    assert data.train.images[:, 0, 0, 0].tolist() == [0, 255, 0]
    assert data.test.labels.tolist() == [1]
    assert data.mean == pytest.approx((1 / 3, 0.0, 0.2 / 3))


def test_the_test_folder_may_be_called_test(images: Path) -> None:
    (images / "val").rename(images / "test")
    assert len(folder.read(images).test) == 1


def test_grey_and_palette_images_become_rgb(images: Path) -> None:
    Image.new("L", (4, 4), 77).save(images / "train/cat/z.PNG")
    Image.new("P", (4, 4)).save(images / "train/dog/b.png")
    assert folder.read(images).train.images[0, :, 0, 0].tolist() == [77, 77, 77]


def test_images_of_several_sizes_need_the_option(images: Path) -> None:
    write(images / "train/dog/d.jpg", size=(6, 8))
    with pytest.raises(DataError, match=r"d\.jpg has 6 x 8 pixels where .*z\.PNG has 4 x 4.*`size`"):
        folder.read(images)
    assert folder.read(images, size=2).shape == (3, 2, 2)


def test_size_crops_the_centre(images: Path) -> None:
    pixels = np.zeros((2, 6, 3), np.uint8)
    pixels[:, 2:4] = 200  # the middle square of a 6 x 2 image
    Image.fromarray(pixels).save(images / "train/cat/z.PNG")
    assert folder.read(images, size=2).train.images[0].tolist() == [[[200, 200], [200, 200]]] * 3


def test_progress_is_reported(images: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    folder.read(images, progress=lambda *report: reports.append(report))
    assert reports == [("Measuring images", count, 3) for count in (1, 2, 3)]


def test_an_unreadable_image_is_named(images: Path) -> None:
    victim = write(images / "train/dog/a.jpeg", size=(40, 40))
    for content in (victim.read_bytes()[:-300], b"text", b""):
        victim.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.jpeg cannot be read as an image"):
            folder.read(images, size=4)
    Image.new("I;16", (4, 4)).save(images / "train/cat/z.PNG")
    with pytest.raises(DataError, match=r"z\.PNG cannot be read as an image \(its pixels have more than 8"):
        folder.read(images)


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n0 0 4 4 rectfill\n%%EOF\n"


def test_only_decoders_of_the_listed_formats_are_used(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow gives PostScript to Ghostscript."""
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    tiff = io.BytesIO()
    Image.new("RGB", (4, 4)).save(tiff, "TIFF")
    for content in (POSTSCRIPT, tiff.getvalue()):
        (images / "train/cat/z.PNG").write_bytes(content)
        with pytest.raises(DataError, match=r"z\.PNG cannot be read as an image \(PNG, JPEG, BMP, WEBP\)"):
            folder.read(images)
    assert not (tmp_path / "started").exists()


def test_only_regular_files_are_opened(images: Path) -> None:
    victim = images / "train/cat/z.PNG"
    victim.unlink()
    os.mkfifo(victim)
    with pytest.raises(DataError, match=r"z\.PNG cannot be read \(not a regular file\)"):
        folder.read(images)
    for target in ("/dev/zero", images / "train/dog"):
        victim.unlink()
        victim.symlink_to(target)
        with pytest.raises(DataError, match=r"z\.PNG cannot be read \(not a regular file\)"):
            folder.read(images)
    victim.unlink()
    victim.symlink_to(images / "train/dog/b.png")
    assert len(folder.read(images).train) == 3


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_a_decompression_bomb_raises_a_data_error(side: int, images: Path) -> None:
    bomb = io.BytesIO()
    Image.new("1", (side, side)).save(bomb, "PNG")
    (images / "train/cat/z.PNG").write_bytes(bomb.getvalue())
    with pytest.raises(DataError, match=r"z\.PNG has more pixels than an image may have; replace or remove it\.$"):
        folder.read(images)


def test_missing_folders_and_classes_are_named(images: Path) -> None:
    write(images / "val/eel/a.png")
    with pytest.raises(DataError, match=r"val has the class eel, of which .*train has no images"):
        folder.read(images)
    (images / "train/eel").mkdir()
    with pytest.raises(DataError, match="eel holds no images"):
        folder.read(images)
    with pytest.raises(DataError, match="train is missing"):
        folder.read(images / "train/dog")
    (images / "val").rename(images / "elsewhere")
    (images / "train/eel").rmdir()
    with pytest.raises(DataError, match="val is missing: an image folder holds train/<class>"):
        folder.read(images)
    (images / "val").mkdir()
    with pytest.raises(DataError, match="val must hold one folder of images for each class"):
        folder.read(images)


def test_an_unknown_option_gets_the_nearest_name(images: Path) -> None:
    with pytest.raises(OptionError, match="no image option `sise`; did you mean `size`"):
        folder.read(images, sise=3)
    with pytest.raises(OptionError, match="`size` should be"):
        folder.read(images, size=0)

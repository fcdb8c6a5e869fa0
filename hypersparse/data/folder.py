"""A folder of images as a data set: `train/<class>/*` and `val/<class>/*` (or `test/<class>/*`)."""

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from hypersparse.data.dataset import Dataset, Progress, Split, channel_statistics
from hypersparse.data.files import read_file
from hypersparse.errors import DataError
from hypersparse.options import option, options

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
TEST_FOLDERS = ("val", "test")
IMAGES_PER_REPORT = 200

Pixels = npt.NDArray[np.uint8]


@options
class FolderOptions:
    """Preprocessing of the images."""

    size: int | None = option(
        default=None, help="Crop every image to its central square and resize it to this side.", ge=1
    )


def read(path: Path, *, progress: Progress | None = None, **values: Any) -> Dataset:
    """Read all images as RGB; classes are the sorted folder names, images are sorted by file name."""
    chosen = FolderOptions(**values)
    test_folder = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), path / TEST_FOLDERS[0])
    train_files, test_files = _files_by_class(path / "train"), _files_by_class(test_folder)
    classes = tuple(train_files)
    if unknown_names := sorted(test_files.keys() - train_files.keys()):
        raise DataError(f"{test_folder} has the class {unknown_names[0]}, of which {path / 'train'} has no images.")
    train = _decode_split(train_files, classes, chosen.size, progress)
    test = _decode_split(test_files, classes, chosen.size, progress)
    mean, std = channel_statistics(train.images)
    return Dataset(path.resolve().name, train, test, classes, mean, std)


def decode_images(
    names: Sequence[str], read_bytes: Callable[[str], bytes], *, size: int | None, progress: Progress | None
) -> Pixels:
    """Decode images of one size to uint8 [N, 3, H, W]; `read_bytes` returns the content of a file."""
    first = decode_image(read_bytes(names[0]), names[0], size)
    images = np.empty((len(names), *first.shape), np.uint8)
    for index, name in enumerate(names):
        image = decode_image(read_bytes(name), name, size)
        if image.shape != first.shape:
            came = f"{_size_text(image)} pixels where {names[0]} has {_size_text(first)}"
            advice = "all images must have the same size; for an image folder, set the option `size` (such as size=32)"
            raise DataError(f"{name} has {came}; {advice}.")
        images[index] = image
        done = index + 1
        if progress and (done % IMAGES_PER_REPORT == 0 or done == len(names)):
            progress("Decoding images", done, len(names))
    return images


def decode_image(content: bytes, name: str, size: int | None) -> Pixels:
    """Decode one image file to uint8 [3, H, W]; with `size`, the central square is cropped and resized."""
    from PIL import UnidentifiedImageError
    from PIL.Image import DecompressionBombError, DecompressionBombWarning, Resampling
    from PIL.Image import open as open_image

    try:
        # Some of Pillow's other formats start programs, and many are rarely tested.
        with warnings.catch_warnings():
            warnings.simplefilter("error", DecompressionBombWarning)
            image = _rgb(open_image(io.BytesIO(content), formats=FORMATS))
    except (DecompressionBombError, DecompressionBombWarning):
        raise DataError(f"{name} has more pixels than an image may have; replace or remove it.") from None
    except UnidentifiedImageError:  # Pillow's message does not name the file
        raise DataError(f"{name} cannot be read as an image ({', '.join(FORMATS)}); replace or remove it.") from None
    except Exception as error:  # the decoders raise anything from OSError to SyntaxError
        raise DataError(f"{name} cannot be read as an image ({error}); replace or remove it.") from error
    if size is not None:
        image = middle_of(image, size, size, resampling=Resampling.BILINEAR)
    return np.asarray(image, np.uint8).transpose(2, 0, 1)


def _rgb(file: "Image") -> "Image":
    with file:
        if file.mode.startswith(("I", "F")):
            raise ValueError(f"its pixels have more than 8 bits (mode {file.mode})")
        return file.convert("RGB")


def middle_of(image: "Image", width: int, height: int, *, resampling: int) -> "Image":
    """The largest central crop with this aspect ratio, resized to this size."""
    taken = min(image.width / width, image.height / height)
    across, down = max(round(taken * width), 1), max(round(taken * height), 1)
    left, top = (image.width - across) // 2, (image.height - down) // 2
    return image.crop((left, top, left + across, top + down)).resize((width, height), resampling)


def _size_text(image: Pixels) -> str:
    return f"{image.shape[2]} x {image.shape[1]}"


def _files_by_class(folder: Path) -> dict[str, list[Path]]:
    if not folder.is_dir():
        raise DataError(f"{folder} is missing: an image folder holds train/<class>/* and val/<class>/*.")
    subfolders = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    files = {subfolder.name: _images_in(subfolder) for subfolder in subfolders}
    if not files:
        raise DataError(f"{folder} must hold one folder of images for each class; it has no folders.")
    if empty := [name for name in files if not files[name]]:
        raise DataError(f"{folder / empty[0]} holds no images ({', '.join(SUFFIXES)}).")
    return files


def _images_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] != ".")


def _decode_split(
    files: dict[str, list[Path]], classes: tuple[str, ...], size: int | None, progress: Progress | None
) -> Split:
    names = [str(file) for name in files for file in files[name]]
    labels = [classes.index(name) for name in files for _ in files[name]]
    images = decode_images(names, lambda name: read_file(Path(name)), size=size, progress=progress)
    return Split(torch.from_numpy(images), torch.tensor(labels))

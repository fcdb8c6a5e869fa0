"""`tinyimagenet`: 110,000 colour images of 64 x 64 pixels in 200 classes, decoded once and cached as uint8."""

import hashlib
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from hypersparse.data.dataset import Dataset, Progress, Split, no_options
from hypersparse.data.decode import SUFFIXES, NamedFiles, bombs_raise, decode_image, decode_images
from hypersparse.data.files import Archive, check_archive, find, locate, read_file, replacing
from hypersparse.data.npz_file import Arrays, read_arrays
from hypersparse.errors import DataError
from hypersparse.regular_file import open_regular

ARCHIVE = Archive(
    file="tiny-imagenet-200.zip",
    unpacked="tiny-imagenet-200",
    url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    sha256="6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    size=248_100_043,
)
SHAPE = (3, 64, 64)
LARGEST_MEMBER_BYTES = 1 << 22  # bounds an image of 64 x 64 pixels or the table of 10,000 labels
CACHE = "tinyimagenet-uint8.npz"
MEAN = (0.48024578664982126, 0.44807218089384643, 0.3975477478649648)
STD = (0.2769864069088257, 0.26906448510256, 0.282081906210584)
ANNOTATIONS = "val/val_annotations.txt"


@dataclass(frozen=True)
class FileTree:
    """The files of the data set in a folder or a zip archive: sizes by relative path, and a function to read one."""

    place: Path
    sizes: Mapping[str, int]
    read: Callable[[str], bytes]

    @property
    def fingerprint(self) -> str:
        """A digest of all paths and sizes."""
        lines = "\n".join(f"{name} {self.sizes[name]}" for name in sorted(self.sizes))
        return hashlib.sha256(lines.encode()).hexdigest()


def load(
    folders: Sequence[Path] = (), *, download: bool = False, progress: Progress | None = None, **options: Any
) -> Dataset:
    """100,000 training images, and the 10,000 of `val` as test images; classes are the sorted WordNet ids.

    The archive is checked and decoded once, which takes a minute. The result is cached in the last folder and used
    until the files change.
    """
    no_options("tinyimagenet", options)
    found = find(folders, (ARCHIVE.unpacked, ARCHIVE.file))
    if found is None and (cached := _cached(folders, None)):
        return cached
    place = found or locate(ARCHIVE, folders, download=download, progress=progress)
    with _tree(place) as tree:
        if cached := _cached(folders, tree.fingerprint):
            return cached
        if place.is_file():
            check_archive(place, ARCHIVE)
        arrays = _decode(tree, progress)
    _write_cache(arrays, folders[-1] / CACHE)
    return _dataset(arrays)


def _dataset(arrays: Arrays) -> Dataset:
    train, test = (
        Split(torch.from_numpy(arrays[f"x_{part}"]), torch.from_numpy(arrays[f"y_{part}"]))
        for part in ("train", "test")
    )
    return Dataset("tinyimagenet", train, test, tuple(arrays["classes"].tolist()), MEAN, STD)


def _cached(folders: Sequence[Path], fingerprint: str | None) -> Dataset | None:
    """The first valid cache of files with this fingerprint; None accepts any fingerprint."""
    for path in (folder / CACHE for folder in folders):
        try:
            arrays = read_arrays(path)
            if fingerprint in (None, str(arrays["fingerprint"])):
                return _dataset(arrays)
        except (DataError, KeyError, TypeError):  # missing, damaged or of another format: decode again
            continue
    return None


def _write_cache(arrays: Mapping[str, Any], path: Path) -> None:
    try:
        with replacing(path) as file:
            np.savez(file, **arrays)
    except OSError as error:
        problem = f"The decoded images could not be written to {path} ({error.strerror})"
        raise DataError(f"{problem}; free disk space, or pass another folder last.") from error


@contextmanager
def _tree(place: Path) -> Iterator[FileTree]:
    if place.is_dir():
        yield FileTree(place, _sizes(place), lambda name: read_file(place / name))
        return
    try:
        with open_regular(place) as file, zipfile.ZipFile(file) as archive:
            root = f"{ARCHIVE.unpacked}/"
            members = {info.filename.removeprefix(root): info for info in archive.infolist() if not info.is_dir()}
            sizes = {name: info.file_size for name, info in members.items()}
            yield FileTree(place, sizes, lambda name: _content(archive, members[name]))
    except DataError:
        raise
    except Exception as error:  # zipfile raises anything from NotImplementedError to struct.error
        raise DataError(f"{place} is truncated or damaged ({error}); delete it and get it again.") from error


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.file_size > LARGEST_MEMBER_BYTES:
        raise ValueError(f"{member.filename} claims {member.file_size} bytes")
    return archive.read(member)


def _sizes(folder: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    seen: set[Path] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):  # five times as fast as Path.rglob
        if (real := Path(parent).resolve()) in seen:  # links can form a cycle
            folders.clear()
            continue
        seen.add(real)
        prefix = Path(parent).relative_to(folder).as_posix()
        for name in names:
            sizes[f"{prefix}/{name}".removeprefix("./")] = Path(parent, name).lstat().st_size
    return sizes


def _decode(tree: FileTree, progress: Progress | None) -> Arrays:
    """Decode all images and labels to the arrays of the cache file."""
    train = _labelled(tree, "train")
    classes = sorted(set(train.values()))
    test = _annotated(tree) if _images(tree, "val/images") else _labelled(tree, "val")
    _check(tree, "train", train, classes)
    _check(tree, "val", test, classes)
    arrays: Arrays = {"classes": np.array(classes), "fingerprint": np.array(tree.fingerprint)}
    first = next(iter(train))
    with bombs_raise():
        shape = decode_image(tree.read(first), first, None).shape
    if shape != SHAPE:
        raise DataError(f"{first} in {tree.place} must have the shape {SHAPE}; got {shape}.")
    for part, labels in (("train", train), ("test", test)):
        files = NamedFiles(list(labels), tree.read)
        arrays[f"x_{part}"] = decode_images(files, range(len(files)), size=None, progress=progress)
        arrays[f"y_{part}"] = np.searchsorted(classes, list(labels.values()))
    return arrays


def _images(tree: FileTree, folder: str) -> list[str]:
    """Paths of the images in a folder and its subfolders, sorted by class, then name."""
    paths = (PurePosixPath(name) for name in tree.sizes if name.startswith(f"{folder}/"))
    return sorted(str(path) for path in paths if path.suffix.lower() in SUFFIXES and path.name[0] != ".")


def _labelled(tree: FileTree, folder: str) -> dict[str, str]:
    """WordNet id by path, for `train/<wnid>/images/*` or `train/<wnid>/*`."""
    return {name: name.split("/")[1] for name in _images(tree, folder)}


def _annotated(tree: FileTree) -> dict[str, str]:
    """WordNet id by path, for `val/images/*` and its table of annotations."""
    if ANNOTATIONS not in tree.sizes:
        raise DataError(f"{tree.place} has no {ANNOTATIONS}; unpack the archive again.")
    rows = [line.split("\t") for line in tree.read(ANNOTATIONS).decode(errors="replace").splitlines() if line]
    wnids = {f"val/images/{row[0]}": row[1] for row in rows if len(row) > 1}
    images = _images(tree, "val/images")
    if differing := sorted(wnids.keys() ^ set(images)):
        problem = f"{differing[0]} is not both a file and a row of {ANNOTATIONS}"
        raise DataError(f"{tree.place} is incomplete: {problem}; unpack the archive again.")
    return {name: wnids[name] for name in images}


def _check(tree: FileTree, folder: str, labels: Mapping[str, str], classes: Sequence[str]) -> None:
    """Check that no class is missing and all have the same number of images, to detect incomplete archives."""
    if "wnids.txt" in tree.sizes:
        classes = tree.read("wnids.txt").decode(errors="replace").split()
    counts = Counter(labels.values())
    if not counts:
        raise DataError(f"{tree.place} is incomplete: it has no images in {folder}; unpack the archive again.")
    if differing := sorted(set(classes) ^ counts.keys()):
        problem = f"{differing[0]} is not both a class and a folder or label in {folder}"
        raise DataError(f"{tree.place} is incomplete: {problem}; unpack the archive again.")
    least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    if counts[least] != counts[most]:
        problem = f"{folder} has {counts[least]} images of {least} but {counts[most]} of {most}"
        raise DataError(f"{tree.place} is incomplete: {problem}; unpack the archive again.")

"""Folders of Hugging Face `datasets`: Arrow files as `save_to_disk` writes them, or Parquet files as on the Hub.

Images are read where they lie in Arrow files. Parquet files are compressed, so they are first copied to an Arrow file.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hypersparse.data.dataset import Dataset, Progress
from hypersparse.data.encoded import EncodedSplit
from hypersparse.data.files import replacing
from hypersparse.data.folder import ImageOptions
from hypersparse.data.shards import Integers, class_names, joined, split_files
from hypersparse.errors import DataError
from hypersparse.extras import needed
from hypersparse.regular_file import open_regular

Kind = Literal[".arrow", ".parquet"]
BATCH_BYTES = 1 << 28  # of Parquet rows at once, if each were as large as all of its row group
LABEL_NAMES = ("label", "labels", "fine_label", "class", "cls", "target")
Part = tuple[Integers, Integers, list[Any]]  # first bytes, sizes and labels of images in a file


@dataclass(frozen=True)
class Columns:
    """Which columns hold the images and the labels, and the names of the classes."""

    image: str
    label: str
    classes: tuple[str, ...] | None
    in_struct: bool  # {"bytes": ..., "path": ...}, as `datasets` stores images


def kind_of(path: Path) -> Kind | None:
    """Of which files a folder consists, if it is one."""
    places = [path, path / "data", *(place for place in path.iterdir() if place.is_dir())]
    kinds: tuple[Kind, ...] = (".arrow", ".parquet")
    return next((kind for kind in kinds if any(any(place.glob(f"*{kind}")) for place in places)), None)


def read(
    path: Path,
    *,
    cache: Path | None,
    image: str | None = None,
    label: str | None = None,
    progress: Progress | None = None,
    **values: Any,
) -> Dataset:
    """Find all images; `image` and `label` name the columns where that is not clear."""
    options, kind = ImageOptions(**values), kind_of(path)
    assert kind is not None
    files = split_files(path, kind)
    with _errors_of(path):
        columns = _columns(_schema(files["train"][0], kind), path, image, label)
        if kind == ".parquet":
            files = {part: [_as_arrow(shards, columns, cache, path, progress)] for part, shards in files.items()}
        parts = {part: [_rows_of(file, columns) for file in shards] for part, shards in files.items()}
        classes, splits = _labelled(files, parts, columns)
    return options.dataset(path.resolve().name, splits["train"], splits["test"], classes, progress)


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Turn the errors of pyarrow into one sentence."""
    try:
        yield
    except (_arrow().ArrowException, LookupError, OSError, OverflowError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} has a file that is damaged or cannot be read ({reason}).") from error


def _arrow() -> Any:
    return needed("pyarrow", "datasets", "A folder of Arrow or Parquet files")


def _schema(file: Path, kind: Kind) -> Any:
    arrow = _arrow()
    with open_regular(file) as opened:
        if kind == ".parquet":
            return needed("pyarrow.parquet", "datasets", "Parquet").read_schema(opened)
        return arrow.ipc.open_stream(opened).schema


def _columns(schema: Any, path: Path, image: str | None, label: str | None) -> Columns:
    arrow, features = _arrow(), _features(schema)
    images = [name for name in schema.names if _is_image(arrow, schema.field(name).type)]
    typed = [name for name in images if features.get(name, {}).get("_type") == "Image"]
    classed = [name for name in schema.names if features.get(name, {}).get("_type") == "ClassLabel"]
    named = [name for name in LABEL_NAMES if name in schema.names]
    image = image or _only(typed or images, "image", schema, path)
    label = label or _only(classed or named[:1], "label", schema, path)
    for name, known in ((image, images), (label, schema.names)):
        if name not in known:
            raise DataError(f"{path} has no column `{name}` of that kind; it has: {', '.join(schema.names)}.")
    names = features.get(label, {}).get("names")
    classes = tuple(map(str, names)) if isinstance(names, list) else None
    return Columns(image, label, classes, arrow.types.is_struct(schema.field(image).type))


def _only(found: Sequence[str], option: str, schema: Any, path: Path) -> str:
    if len(found) != 1:
        which = "several columns could" if found else "no column seems to"
        raise DataError(
            f"In {path} {which} hold the {option}s; set the option `{option}` to one of: "
            f"{', '.join(found or schema.names)}."
        )
    return found[0]


def _is_image(arrow: Any, kind: Any) -> bool:
    if arrow.types.is_struct(kind):
        return any(kind.field(index).name == "bytes" and _is_bytes(arrow, kind.field(index).type)
                   for index in range(kind.num_fields))  # fmt: skip
    return _is_bytes(arrow, kind)


def _is_bytes(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind))


def _features(schema: Any) -> dict[str, Any]:
    """What `datasets` has written about the columns; nothing where another program wrote the file."""
    try:
        found = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return {name: kind for name, kind in found.items() if isinstance(kind, dict)} if isinstance(found, dict) else {}


def _as_arrow(
    files: Sequence[Path], columns: Columns, cache: Path | None, path: Path, progress: Progress | None
) -> Path:
    """Copy images and labels of Parquet files to one Arrow file, unless that is there."""
    if cache is None:
        raise DataError(f"{path} holds Parquet files, which are copied to an Arrow file once; pass a folder for it.")
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    digest = hashlib.sha256(json.dumps([states, columns.image, columns.label]).encode()).hexdigest()
    target = cache / f"{path.resolve().name}-{digest[:16]}.arrow"
    if target.exists():
        return target
    arrow = _arrow()
    writer = None
    with replacing(target) as written:
        for number, file in enumerate(files, 1):
            for batch in _parquet_batches(file, columns):
                writer = writer or arrow.ipc.new_stream(written, batch.schema)
                writer.write_batch(batch)
            if progress:
                progress("Copying Parquet files", number, len(files))
        if writer is None:
            raise DataError(f"{path} has no images in {files[0].name}.")
        writer.close()
    return target


def _parquet_batches(file: Path, columns: Columns) -> Iterator[Any]:
    """Rows of a file, few enough at a time for the memory whatever the file claims."""
    parquet = needed("pyarrow.parquet", "datasets", "Parquet")
    wanted = [f"{columns.image}.bytes" if columns.in_struct else columns.image, columns.label]
    with open_regular(file) as opened:
        found = parquet.ParquetFile(opened, pre_buffer=False, buffer_size=1 << 20)
        for group in range(found.num_row_groups):
            size = max(found.metadata.row_group(group).total_byte_size, 1)
            rows = min(max(BATCH_BYTES // size, 1), 1000)
            yield from found.iter_batches(rows, row_groups=[group], columns=wanted, use_threads=False)


def _rows_of(file: Path, columns: Columns) -> Part:
    """Where the images of an Arrow file lie in it, and their labels."""
    arrow = _arrow()
    open_regular(file).close()  # a pipe could not be mapped
    starts, sizes, labels = [], [], list[Any]()
    with arrow.memory_map(str(file)) as mapped:
        whole = mapped.read_buffer()
        for batch in arrow.ipc.open_stream(arrow.BufferReader(whole)):
            batch.validate()
            images = batch.column(columns.image)
            if columns.in_struct:
                index = images.type.get_field_index("bytes")
                images = images.flatten()[index]
            first, size = _ranges(images, whole, file)
            starts.append(first)
            sizes.append(size)
            given = batch.column(columns.label)
            given.validate(full=True)
            labels += given.to_pylist()
    if not starts:
        return np.empty(0, np.int64), np.empty(0, np.int64), []
    return np.concatenate(starts), np.concatenate(sizes), labels


def _ranges(images: Any, whole: Any, file: Path) -> tuple[Integers, Integers]:
    """First bytes and sizes of a column of bytes, which must lie in the mapped file as they are."""
    arrow = _arrow()
    if not _is_bytes(arrow, images.type):
        raise DataError(f"{file} holds images of the type {images.type}; encoded ones were expected, as bytes.")
    if images.null_count:
        raise DataError(f"{file} has images that are in other files, or none; embed them in the data set first.")
    if not len(images):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    _, offsets, values = images.buffers()
    kind = np.int64 if arrow.types.is_large_binary(images.type) else np.int32
    bounds = np.frombuffer(offsets, kind)[images.offset : images.offset + len(images) + 1].astype(np.int64)
    base = 0 if values is None else values.address - whole.address
    inside = values is None or (base >= 0 and base + values.size <= whole.size)
    if not inside:
        raise DataError(f"{file} has compressed columns; save it again without compression.")
    limit = 0 if values is None else values.size
    if len(bounds) != len(images) + 1 or bounds[0] < 0 or bounds[-1] > limit or (np.diff(bounds) < 0).any():
        raise DataError(f"{file} is damaged: an image lies outside it.")
    return bounds[:-1] + base, np.diff(bounds)


def _labelled(
    files: dict[str, list[Path]], parts: dict[str, list[Part]], columns: Columns
) -> tuple[tuple[str, ...], dict[str, EncodedSplit]]:
    """The classes, and the splits with labels as numbers; classes that are texts are sorted."""
    values = [label for found in parts.values() for _, _, labels in found for label in labels]
    kinds = {type(value) for value in values}
    if not any(kinds <= known for known in ({str}, {int, bool})):
        strange = next((value for value in values if not isinstance(value, int | str)), "both")
        raise DataError(f"The column `{columns.label}` should hold numbers or names of classes; got {strange!r}.")
    texts = sorted(set(values)) if kinds == {str} else []
    number = {text: place for place, text in enumerate(texts)}
    splits = {
        part: joined(files[part], [(first, size, np.array([number.get(label, label) for label in labels], np.int64))
                                   for first, size, labels in found])
        for part, found in parts.items()
    }  # fmt: skip
    return class_names(splits, texts or columns.classes), splits

"""`.hsp` files: a `Graph` in one small safetensors file, read without torch and without running anything in it.

The file has three tensors of bytes and, in the header's metadata, `format`, `version`, `digest` and `about` (JSON:
classes, normalisation, recipe and the like):

- `graph`: deflated JSON with the shape of the input, the nodes and a row for each array;
- `positions`: where arrays are not zero, see `position_coding`;
- `values`: what they hold there, arrays of one type behind each other, first bytes first, then scales; deflated.

Every array is read back bit for bit, except that -0.0 in a sparse array becomes 0.0. An array stored as `half` or
`int8_rows` becomes float32. A damaged or forged file raises a `FileError` of one sentence before anything large is
allocated.
"""

import os
import stat
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.container import FileError, container, inflated, parsed, sections_of, to_json, whole
from hypersparse_runtime.graph import INPUT, Graph, Node
from hypersparse_runtime.limits import SMALL, check_sizes
from hypersparse_runtime.names import strange_name
from hypersparse_runtime.operations import OPERATIONS
from hypersparse_runtime.position_coding import COLUMNS, MOST_BITS, PLAIN, CodingError, Layout, decode, encode
from hypersparse_runtime.row_quantization import STEPS, Scales, dequantize_rows, from_bytes, quantized_exactly, to_bytes

HALF = "half"  # float32 kept as float16
ROWS = "int8_rows"  # float32 kept as int8 and a scale for each row of the first axis, see `row_quantization`
DTYPES = ("float32", HALF, "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", ROWS)
STORED = {HALF: "float16", ROWS: "int8"}  # the types of those two in the file
SCALE = np.dtype("<u2")
DENSE = -1  # in place of a count: every element is stored
MOST_MATCHED = 2**20  # bytes in which repetitions are sought; in more that took minutes for under 1 %: only runs are
WORTH_POSITIONS = 0.95  # an array of which more is kept is stored whole

MOST_BYTES = 2**32  # of a file
MOST_GRAPH = 2**22  # of its JSON
MOST_SYMBOLS, MOST_SYMBOLS_PER_BYTE = 2**22, 4  # positions that are decoded, and in files larger than SMALL
MOST_WEIGHTS_PER_BYTE, FEW_WEIGHTS = 4096, 2**22  # what a file may claim to hold; VGG-19 at 99.8 % has 150 a byte


@dataclass(frozen=True)
class _Entry:
    """A row in the table of arrays."""

    name: str
    dtype: str
    layout: Layout
    dense: bool

    @property
    def stored(self) -> int:
        """The number of elements in the stream of values."""
        return self.layout.size if self.dense else self.layout.kept

    @property
    def dtype_in_memory(self) -> np.dtype[Any]:
        """The type of the elements after reading."""
        return np.dtype("float32" if self.dtype in STORED else self.dtype)

    @property
    def scales(self) -> int:
        """The number of rows with a scale in the stream of values."""
        return self.layout.shape[0] if self.dtype == ROWS else 0


def write(graph: Graph, path: str | Path, *, half: bool = False) -> int:
    """Write a network to a file, which appears as a whole or not at all; returns its size in bytes."""
    path = Path(path)
    content = pack(graph, half=half)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return len(content)


def read(path: str | Path) -> Graph:
    """Read a network; raises FileError with one sentence if the file is not intact."""
    path = Path(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
            raise FileError(f"{path} cannot be read: it is not a regular file.")
        size = status.st_size
        if size > MOST_BYTES:
            raise FileError(f"{path} has {size} bytes; no network of this kind is so large.")
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        return unpack(content)
    except FileError as error:
        raise FileError(f"{path} is not a whole .hsp file ({error}); copy or export it again.") from None


def pack(graph: Graph, *, half: bool = False, int8: bool = False) -> bytes:
    """The bytes of a network's file. With `half`, float32 arrays are stored in half precision if their values fit.

    With `int8`, arrays that are whole multiples of a scale for each row are stored as int8, which is exact.
    """
    check_sizes(graph)
    arrays = {name: np.asarray(array) for name, array in graph.tensors.items()}
    quantized = {name: found for name, array in arrays.items() if int8 and (found := quantized_exactly(array))}
    stored_as = {name: ROWS if name in quantized else _dtype(name, array, half) for name, array in arrays.items()}
    masks = {name: np.asarray(array != 0) for name, array in arrays.items()}
    sparse = [name for name, mask in masks.items() if mask.size and mask.mean() <= WORTH_POSITIONS]
    layouts, strings = encode(masks[name] for name in sparse)
    by_name = dict(zip(sparse, layouts, strict=True))
    table = [
        [name, list(array.shape), DTYPES.index(stored_as[name]), *_coded(by_name.get(name))]
        for name, array in arrays.items()
    ]
    stored = {name: quantized[name][0] if name in quantized else array for name, array in arrays.items()}
    values = {name: array[masks[name]] if name in by_name else array.ravel() for name, array in stored.items()}
    scales = [to_bytes(scales) for _, scales in quantized.values()]
    text = {
        "input": list(graph.input_shape),
        "nodes": _node_rows(graph, list(arrays)),
        "arrays": table,
        "strings": [len(string) for string in strings],
    }
    sections = {
        "graph": zlib.compress(to_json(text), 9),
        "positions": b"".join(strings),
        "values": _deflated(
            _planes(values, stored_as) + _bytes_by_place(np.concatenate([*scales, np.zeros(0, SCALE)]))
        ),
    }
    content = container(sections, to_json(dict(graph.about)).decode())
    kept = {name: len(values[name]) for name in arrays}
    check_sizes(graph, kept=kept, size=len(content))
    return content


def unpack(content: bytes) -> Graph:
    """The network in the bytes of a file."""
    sections, about = sections_of(content)
    text = parsed(inflated(sections["graph"], MOST_GRAPH, exact=False), "its graph")
    try:
        entries = [_entry(row) for row in _list(text, "arrays")]
        nodes = tuple(_node(row, number, entries) for number, row in enumerate(_list(text, "nodes")))
        input_shape = _shape(text["input"])
        lengths = [whole(length) for length in _list(text, "strings")]
    except FileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileError(f"its graph is not understood: {type(error).__name__} {error}") from None
    _check_claims(entries, len(content))
    claimed = {entry.name: np.broadcast_to(entry.dtype_in_memory.type(0), entry.layout.shape) for entry in entries}
    kept = {entry.name: entry.stored for entry in entries}
    check_sizes(Graph(input_shape, nodes, claimed, about), kept=kept, size=len(content))
    return Graph(input_shape, nodes, _arrays(entries, sections, lengths), about)


def _dtype(name: str, array: NDArray[Any], half: bool) -> str:
    kind = str(array.dtype)
    if kind not in DTYPES:
        raise FileError(f"the array `{name}` is {kind}, which a file cannot hold; make it float32.")
    fits = kind == "float32" and bool(np.all(np.abs(array) < np.finfo(np.float16).max))
    return HALF if half and fits else kind


def _deflated(content: bytes) -> bytes:
    if len(content) <= MOST_MATCHED:
        return zlib.compress(content, 9)
    deflater = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    return deflater.compress(content) + deflater.flush()


def _coded(layout: Layout | None) -> list[int]:
    return [DENSE] if layout is None else [layout.kept, layout.layout, layout.bits]


def _node_rows(graph: Graph, names: Sequence[str]) -> list[list[Any]]:
    """A row for each node. Values are numbers: 0 is the input, and a node's value is the node's position from 1."""
    numbers = {INPUT: 0, **{node.output: place for place, node in enumerate(graph.nodes, start=1)}}
    places = {name: place for place, name in enumerate(names)}
    return [
        [
            node.op,
            [numbers[name] for name in node.inputs],
            {role: places[name] for role, name in node.tensors.items()},
            dict(node.options),
        ]
        for node in graph.nodes
    ]


def _node(row: Any, number: int, entries: Sequence[_Entry]) -> Node:
    op, inputs, tensors, options = row
    if not isinstance(op, str) or not isinstance(options, dict):
        raise FileError("a node has no operation")
    if strange := strange_name([op, *tensors, *options]):
        raise FileError(strange)
    sources = tuple(_value(whole(source)) for source in inputs)
    roles = {str(role): entries[whole(place)].name for role, place in tensors.items()}
    known = op in OPERATIONS
    plain = {name: tuple(value) if known and isinstance(value, list) else value for name, value in options.items()}
    if not known and isinstance(plain.get("shape"), list):
        plain["shape"] = _shape(plain["shape"])
    return Node(op, sources, _value(number + 1), roles, plain)


def _value(number: int) -> str:
    return INPUT if number == 0 else f"v{number}"


def _entry(row: Any) -> _Entry:
    name, shape, dtype, kept, *rest = row
    if strange := strange_name([name]):
        raise FileError(strange)
    sides = _shape(shape, least=0)
    kind = DTYPES[whole(dtype)]
    if kind == ROWS and (len(sides) < 2 or not prod(sides)):
        raise FileError(f"the array `{name}` has no rows that scales could be for")
    if kept == DENSE:
        return _Entry(name, kind, Layout(sides, prod(sides), PLAIN, 0), dense=True)
    layout, bits = (whole(number) for number in rest)
    fits = whole(kept) <= prod(sides) and layout <= COLUMNS and bits <= MOST_BITS and (layout == 0 or len(sides) > 1)
    if not fits:
        raise FileError(f"the array `{name}` has a wrong count or layout")
    return _Entry(name, kind, Layout(sides, kept, layout, bits), dense=False)


def _shape(sides: Any, *, least: int = 1) -> tuple[int, ...]:
    shape = tuple(whole(side) for side in sides)
    if len(shape) > 8 or any(side < least for side in shape) or prod(shape) >= 2**48:
        raise FileError(f"a shape {shape} cannot be one of an array")
    return shape


def _list(text: Mapping[str, Any], name: str) -> list[Any]:
    value = text[name]
    if not isinstance(value, list):
        raise TypeError(name)
    return value


def _check_claims(entries: Sequence[_Entry], size: int) -> None:
    if len({entry.name for entry in entries}) != len(entries):
        raise FileError("two of its arrays have one name")
    claimed = sum(entry.layout.size for entry in entries)
    most = FEW_WEIGHTS + MOST_WEIGHTS_PER_BYTE * size
    if claimed > most:
        raise FileError(f"it claims {claimed} weights in {size} bytes, and {most} are the most")
    symbols = sum(entry.layout.rows + entry.layout.coded for entry in entries if not entry.dense)
    if symbols > MOST_SYMBOLS + MOST_SYMBOLS_PER_BYTE * max(0, size - SMALL):
        raise FileError(f"it claims {symbols} positions in {size} bytes")


def _arrays(entries: Sequence[_Entry], sections: Mapping[str, bytes], lengths: Sequence[int]) -> dict[str, Any]:
    positions = sections["positions"]
    if len(lengths) != 4 or sum(lengths) != len(positions):
        raise FileError("its positions are cut off")
    ends = np.cumsum([0, *lengths])
    strings = [positions[ends[place] : ends[place + 1]] for place in range(4)]
    sparse = [entry for entry in entries if not entry.dense]
    try:
        masks = decode([entry.layout for entry in sparse], strings)
        arrays, scales = _unplaned(entries, sections["values"])
        for entry, mask in zip(sparse, masks, strict=True):  # one after the other: masks may be large
            full = np.zeros(entry.layout.shape, arrays[entry.name].dtype)
            full[mask] = arrays[entry.name]
            arrays[entry.name] = full
    except CodingError as error:
        raise FileError(str(error)) from None
    whole_arrays = {entry.name: arrays[entry.name].reshape(entry.layout.shape) for entry in entries}
    return {**whole_arrays, **{name: dequantize_rows(whole_arrays[name], rows) for name, rows in scales.items()}}


def _stored_type(kind: str) -> np.dtype[Any]:
    return np.dtype(STORED.get(kind, kind)).newbyteorder("<")


def _planes(values: Mapping[str, NDArray[Any]], stored_as: Mapping[str, str]) -> bytes:
    """The first bytes of all elements, then the second bytes, by type: exponents compress, mantissas do not."""
    parts = []
    for kind in DTYPES:
        mine = [np.zeros(0, _stored_type(kind))]
        mine += [values[name].astype(_stored_type(kind)) for name in values if stored_as[name] == kind]
        parts.append(_bytes_by_place(np.concatenate(mine)))
    return b"".join(parts)


def _bytes_by_place(numbers: NDArray[Any]) -> bytes:
    return numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()


def _unplaned(entries: Sequence[_Entry], deflated: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Scales]]:
    """The values of every array, and the scales of those that have some."""
    counts = {kind: sum(entry.stored for entry in entries if entry.dtype == kind) for kind in DTYPES}
    sizes = {kind: count * _stored_type(kind).itemsize for kind, count in counts.items()}
    rows = sum(entry.scales for entry in entries)
    content = inflated(deflated, sum(sizes.values()) + rows * SCALE.itemsize, exact=True)
    values, start = {}, 0
    for kind, size in sizes.items():
        together = _numbers(content[start : start + size], _stored_type(kind))
        if kind == ROWS and len(together) and int(together.min()) < -STEPS:
            raise FileError("a weight has more steps than its scale is for")
        together = together.astype("float32" if kind == HALF else together.dtype.newbyteorder("="), copy=False)
        start += size
        place = 0
        for entry in (entry for entry in entries if entry.dtype == kind):
            values[entry.name] = together[place : place + entry.stored].copy()
            place += entry.stored
    return values, _scales(entries, _numbers(content[start:], SCALE))


def _numbers(content: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    planes = np.frombuffer(content, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).reshape(-1).view(dtype)


def _scales(entries: Sequence[_Entry], stored: NDArray[Any]) -> dict[str, Scales]:
    found, place = {}, 0
    for entry in (entry for entry in entries if entry.scales):
        scales = from_bytes(stored[place : place + entry.scales])
        if scales is None:
            raise FileError(f"a scale of the array `{entry.name}` is not one")
        found[entry.name] = scales
        place += entry.scales
    return found

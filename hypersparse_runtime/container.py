"""The outer form of a `.hsp` file: a safetensors file of three tensors of bytes, with a digest over all of it.

Nothing in a file is trusted: every number is checked, and data that would inflate to more than its limit are refused
before they do.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

FORMAT, VERSION = "hypersparse", "1"
SECTIONS = ("graph", "positions", "values")
MOST_HEADER = 2**24  # bytes


class FileError(ValueError):
    """A damaged, foreign or forged file; the message is one sentence."""


def container(sections: Mapping[str, bytes], about: str) -> bytes:
    """The bytes of a file with these sections; `about` is JSON."""
    header: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "version": VERSION, "about": about, "digest": _digest(sections, about)}
    }
    start = 0
    for name in SECTIONS:
        end = start + len(sections[name])
        header[name] = {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        start = end
    text = to_json(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(sections[name] for name in SECTIONS)


def sections_of(content: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The sections of a file, and its `about`."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(MOST_HEADER, len(content) - 8):
        raise FileError("its header is cut off or not that of a safetensors file")
    header = parsed(content[8 : 8 + length], "its header")
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise FileError("it is a file of another kind")
    if metadata.get("version") != VERSION:
        raise FileError(f"it has the version {metadata.get('version')!r}, and this program reads {VERSION}")
    data = content[8 + length :]
    sections, start = {}, 0
    for name in SECTIONS:
        end = _end(header.get(name), start)
        sections[name] = data[start:end]
        start = end
    if start != len(data) or set(header) != {"__metadata__", *SECTIONS}:
        raise FileError(f"it should hold {start} bytes behind its header and holds {len(data)}")
    about = metadata.get("about")
    if not isinstance(about, str) or metadata.get("digest") != _digest(sections, about):
        raise FileError("its bytes are not those that were written")
    return sections, parsed(about.encode(), "its metadata")


def _end(entry: Any, start: int) -> int:
    if not isinstance(entry, dict) or entry.get("dtype") != "U8":
        raise FileError("its header does not list the parts of a network")
    try:
        begin, end = (whole(offset) for offset in entry["data_offsets"])
        (size,) = entry["shape"]
    except (KeyError, TypeError, ValueError):
        raise FileError("its header has a part without a place") from None
    if begin != start or size != end - begin:
        raise FileError("its header has parts that overlap")
    return end


def _digest(sections: Mapping[str, bytes], about: str) -> str:
    digest = hashlib.sha256(about.encode())
    for name in SECTIONS:
        digest.update(len(sections[name]).to_bytes(8, "little") + sections[name])
    return digest.hexdigest()[:32]


def whole(number: Any) -> int:
    """Check that a number from a file is a non-negative integer."""
    if type(number) is not int or not 0 <= number < 2**63:
        raise FileError(f"{str(number)[:40]!r} stands where a whole number should")
    return number


def inflated(deflated: bytes, most: int, *, exact: bool) -> bytes:
    """Inflate at most `most` bytes; with `exact`, exactly as many."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(deflated, most + 1)
    except zlib.error:
        raise FileError("a part of it does not inflate") from None
    if len(content) > most or (exact and len(content) < most) or not inflater.eof or inflater.unused_data:
        raise FileError("a part of it inflates to another size than it should")
    return content


def to_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def parsed(text: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON table; `what` names it in errors."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        value = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise FileError(f"{what} is not JSON") from None
    if not isinstance(value, dict):
        raise FileError(f"{what} is not a table")
    return value

"""Positions of the kept weights of many arrays as one string of bytes, close to their entropy.

The gaps between positions are Rice codes: a gap of g with b bits is g >> b in unary, then the low b bits. Unary parts
and low bits are two strings, so that numpy decodes all arrays at once. Each array takes the shortest of three layouts:

- `PLAIN`: gaps over the whole array, b bits each;
- `ROWS`: the count of each row (first axis; b bits each), then the gaps in it, with bits that follow from its count;
- `COLUMNS`: the same with the first two axes swapped.

Rows and columns win on trained masks, where whole channels are empty. Where more than half is kept, the positions of
the zeros are coded instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLAIN, ROWS, COLUMNS = range(3)
MOST_BITS = 40  # of a gap's low part; an array has fewer than 2 ** 48 elements
RICE = (9, 13)  # 9 / 13, close to ln 2: a gap of mean m takes the largest b with 2 ** b <= m ln 2

Ints = NDArray[np.int64]


class CodingError(ValueError):
    """Bytes that encode no positions; the message is one sentence."""


@dataclass(frozen=True)
class Layout:
    """The coding of the positions in one array: what a decoder needs besides the bytes."""

    shape: tuple[int, ...]
    kept: int
    layout: int
    bits: int

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return prod(self.shape)

    @property
    def rows(self) -> int:
        """The number of coded counts; none in the plain layout."""
        return 0 if self.layout == PLAIN else self.shape[self.layout - ROWS]

    @property
    def coded(self) -> int:
        """The number of coded positions, of kept or of dropped elements."""
        return min(self.kept, self.size - self.kept)


def encode(masks: Iterable[NDArray[np.bool_]]) -> tuple[list[Layout], list[bytes]]:
    """The layouts and four strings (unary and low bits of counts and of gaps) for the True elements of arrays."""
    layouts: list[Layout] = []
    counts: list[tuple[Ints, Ints]] = []  # symbols and their bits
    gaps: list[tuple[Ints, Ints]] = []
    for mask in masks:
        found = _shortest(mask)
        layouts.append(found[0])
        counts.append(found[1])
        gaps.append(found[2])
    return layouts, [*_rice(counts), *_rice(gaps)]


def decode(layouts: Sequence[Layout], strings: Sequence[bytes]) -> Iterator[NDArray[np.bool_]]:
    """The inverse of `encode`: a boolean array for each layout, one at a time."""
    count_bits = _repeated([layout.bits for layout in layouts], [layout.rows for layout in layouts])
    counts = _unrice(strings[0], strings[1], count_bits)
    bits, row_counts, start = [], [], 0
    for layout in layouts:
        mine = counts[start : start + layout.rows]
        start += layout.rows
        row_counts.append(mine)
        bits.append(_gap_bits(layout, mine))
    gaps = _unrice(strings[2], strings[3], np.concatenate([*bits, np.zeros(0, np.int64)]))
    start = 0
    for layout, mine in zip(layouts, row_counts, strict=True):
        yield _mask(layout, mine, gaps[start : start + layout.coded])
        start += layout.coded


def _shortest(mask: NDArray[np.bool_]) -> tuple[Layout, tuple[Ints, Ints], tuple[Ints, Ints]]:
    kept = int(np.count_nonzero(mask))
    coded = mask if 2 * kept <= mask.size else ~mask
    candidates = [_plain(mask.shape, kept, coded)]
    if mask.ndim >= 2 and mask.size:
        candidates += [_by_rows(mask.shape, kept, coded, layout) for layout in (ROWS, COLUMNS)]
    return min(candidates, key=lambda candidate: _cost(*candidate[1]) + _cost(*candidate[2]))


def _plain(
    shape: tuple[int, ...], kept: int, coded: NDArray[np.bool_]
) -> tuple[Layout, tuple[Ints, Ints], tuple[Ints, Ints]]:
    gaps = np.diff(np.flatnonzero(coded), prepend=-1) - 1
    bits = _best_bits(gaps)
    nothing = np.zeros(0, np.int64)
    return Layout(shape, kept, PLAIN, bits), (nothing, nothing), (gaps, np.full(len(gaps), bits, np.int64))


def _by_rows(
    shape: tuple[int, ...], kept: int, coded: NDArray[np.bool_], layout: int
) -> tuple[Layout, tuple[Ints, Ints], tuple[Ints, Ints]]:
    rows = (np.swapaxes(coded, 0, 1) if layout == COLUMNS else coded).reshape(shape[layout - ROWS], -1)
    row, column = np.nonzero(rows)
    counts = np.bincount(row, minlength=len(rows)).astype(np.int64)
    before = np.concatenate([[-1], column[:-1]])
    first = np.concatenate([[True], row[1:] != row[:-1]]) if len(row) else np.zeros(0, bool)
    gaps = column - np.where(first, -1, before[: len(column)]) - 1
    found = Layout(shape, kept, layout, _best_bits(counts))
    return found, (counts, np.full(len(counts), found.bits, np.int64)), (gaps, _gap_bits(found, counts))


def _best_bits(symbols: Ints) -> int:
    if not len(symbols):
        return 0
    costs = [len(symbols) * bits + int((symbols >> bits).sum()) for bits in range(int(symbols.max()).bit_length() + 1)]
    return int(np.argmin(costs))


def _cost(symbols: Ints, bits: Ints) -> int:
    return int((symbols >> bits).sum() + bits.sum()) + len(symbols)


def _gap_bits(layout: Layout, counts: Ints) -> Ints:
    """The low bits of each gap, computed in integers so that all machines agree."""
    if layout.layout == PLAIN:
        return np.full(layout.coded, layout.bits, np.int64)
    length = layout.size // layout.rows if layout.rows else 0
    if int(counts.sum()) != layout.coded or bool((counts > length).any()):
        raise CodingError("counts of rows do not add up")
    bits = np.zeros(len(counts), np.int64)
    for step in range(1, length.bit_length() + 1):
        bits += counts * (RICE[1] << step) <= length * RICE[0]
    return np.repeat(bits, counts)


def _repeated(values: Sequence[int], times: Sequence[int]) -> Ints:
    return np.repeat(np.asarray(values, np.int64), np.asarray(times, np.int64))


def _rice(parts: Sequence[tuple[Ints, Ints]]) -> tuple[bytes, bytes]:
    nothing = np.zeros(0, np.int64)
    symbols = np.concatenate([*(part[0] for part in parts), nothing])
    widths = np.concatenate([*(part[1] for part in parts), nothing])
    ends = np.cumsum((symbols >> widths) + 1)
    unary = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    unary[ends - 1] = 1
    starts = np.cumsum(widths) - widths
    low = np.zeros(int(widths.sum()), np.uint8)
    for place in range(int(widths.max(initial=0))):
        has = widths > place
        low[starts[has] + place] = (symbols[has] >> (widths[has] - 1 - place)) & 1
    return np.packbits(unary).tobytes(), np.packbits(low).tobytes()


def _unrice(unary: bytes, low: bytes, widths: Ints) -> Ints:
    ends = np.flatnonzero(np.unpackbits(np.frombuffer(unary, np.uint8)))
    bits = np.unpackbits(np.frombuffer(low, np.uint8))
    if len(ends) != len(widths) or len(bits) != -(-int(widths.sum()) // 8) * 8:
        raise CodingError("the coded positions are fewer or more than there should be")
    symbols = np.diff(ends, prepend=-1) - 1
    starts = np.cumsum(widths) - widths
    for place in range(int(widths.max(initial=0))):
        has = widths > place
        symbols[has] = symbols[has] * 2 + bits[starts[has] + place]
    return symbols


def _mask(layout: Layout, counts: Ints, gaps: Ints) -> NDArray[np.bool_]:
    shape: tuple[Any, ...] = layout.shape
    if layout.layout == PLAIN:
        positions, length = np.cumsum(gaps + 1) - 1, layout.size
    else:
        length = layout.size // layout.rows if layout.rows else 0
        ends = np.concatenate([[0], np.cumsum(gaps + 1)])
        before = ends[np.cumsum(counts) - counts]  # where each row's gaps begin to count
        positions = ends[1:] - np.repeat(before, counts) - 1
    if len(positions) and (int(positions.max()) >= length or int(positions.min()) < 0):
        raise CodingError("a position lies outside its array")
    if layout.layout != PLAIN:
        positions = positions + np.repeat(np.arange(layout.rows) * length, counts)
    if layout.layout == COLUMNS:
        shape = (shape[1], shape[0], *shape[2:])
    complement = layout.kept != layout.coded
    mask = np.full(layout.size, complement)
    mask[positions] = not complement
    mask = mask.reshape(shape)
    return np.ascontiguousarray(np.swapaxes(mask, 0, 1)) if layout.layout == COLUMNS else mask

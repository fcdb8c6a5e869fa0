"""Group entries that read the same positions, such as the taps of one kernel row, so that they share loads."""

import numpy as np

from hypersparse_runtime.sparse_layers import Array, Entries

MAX_SHIFTS, MAX_TILE = 3, 8  # distances to the side, and vectors of a tile: as in conv_shared_loads.h
ROWS_PER_BLOCK = 8  # rows whose sums of one block come before those of the next: as in conv_shared_loads.h
CHANNELS, LOADS = 64, 100  # of a block at most, and of a row and block at least: shorter loops end unforeseen too often
# Patterns in the order of adding up, as in conv_shared_loads.h; those of one entry come last.
PATTERN_ORDER = (3, 5, 6, 7, 1, 2, 4)
PATTERNS = len(PATTERN_ORDER)


def blocks_of(entries: Entries) -> Array:
    """The channel block of each entry; a block fits into the first cache and is summed for all rows in turn."""
    channels, place = np.unique(entries.channel, return_inverse=True)
    loads = len(np.unique(_reads(entries))) / max(1, len(np.unique(entries.row)))
    count = max(1, min(-(-len(channels) // CHANNELS), int(loads / LOADS)))
    blocks: Array = place.reshape(-1) * count // max(1, len(channels))
    return blocks


def ranks_of(entries: Entries, group: Array) -> Array:
    """The rank of each entry's pattern: the groups of all entries that read the same positions for its row."""
    _, found = np.unique(_reads(entries), return_inverse=True)
    found = found.reshape(-1)
    patterns: Array = np.bincount(found, weights=1 << group).astype(np.int64)
    rank = np.zeros(2**MAX_SHIFTS, dtype=np.int64)
    rank[list(PATTERN_ORDER)] = np.arange(PATTERNS)
    ranks: Array = rank[patterns[found]]
    return ranks


def _reads(entries: Entries) -> Array:
    """A number for each row, channel and kernel row."""
    tall = int(np.ptp(entries.y)) + 1 if len(entries) else 1
    reads: Array = (entries.row.astype(np.int64) * 2**24 + entries.channel) * tall + (
        entries.y - entries.y.min(initial=0)
    )
    return reads


def packed(
    entries: Entries, place: Array, group: Array, ranks: Array, offsets: Array, blocks: int
) -> tuple[Array, Array]:
    """The start of each row, block and pattern in reading order, and the words: offsets and group weights of loads.

    `place` is the row of each entry.
    """
    rows = int(place.max(initial=-1)) + 1
    block, rank = np.divmod(ranks, PATTERNS)
    begin = place // ROWS_PER_BLOCK * ROWS_PER_BLOCK
    cells = (begin * blocks + block * np.minimum(rows - begin, ROWS_PER_BLOCK) + place - begin) * PATTERNS + rank
    order = np.lexsort((group, entries.y, entries.channel, cells))
    lowest = np.array(PATTERN_ORDER) & -np.array(PATTERN_ORDER)  # the group that comes first, as a bit
    first = (lowest[rank] == 1 << group)[order]
    at = np.arange(len(order)) + np.cumsum(first)  # where weights go
    words = np.zeros(len(order) + int(first.sum()), dtype=np.int32)
    words[at] = words_of(entries.weight[order])
    words[at[first] - 1] = offsets[order][first]
    count = rows * blocks * PATTERNS
    sizes = np.bincount(cells, minlength=count) + np.bincount(cells[order][first], minlength=count)
    return np.concatenate([[0], np.cumsum(sizes)]), words


def words_of(weight: Array) -> Array:
    """Weights as words of 32 bits: floats, or quads as they are."""
    return weight if weight.dtype == np.int32 else weight.astype(np.float32).view(np.int32)

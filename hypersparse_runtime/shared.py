"""Entries that are added up together because they read the same: the taps of one row of a kernel."""

import numpy as np

from hypersparse_runtime.layers import Array, Entries

ASIDE, MOST = 3, 8  # distances to the side, and vectors of a tile: as in shared.h
MOST_OF_TWO = 4  # vectors of a tile that is summed in two chains
RANKED = (3, 5, 6, 7, 1, 2, 4)  # patterns in the order of adding up, as in shared.h; those of one entry come last
PATTERNS = len(RANKED)


def spared(entries: Entries, rows: Array) -> Array:
    """How many loads each of the rows is spared, if a vector is loaded once for the taps of a kernel's row."""
    _, first = np.unique(_reads(entries), return_index=True)
    loads = np.bincount(entries.row[first], minlength=int(rows.max(initial=0)) + 1)
    fewer: Array = (np.bincount(entries.row, minlength=len(loads)) - loads)[rows]
    return fewer


def ranks_of(entries: Entries, group: Array, *, chains: int) -> Array:
    """For each entry the place of its pattern: the groups of all entries that read the same for its row.

    With two chains a pattern of several entries is read an even number of times for a row: of an odd number
    one is taken apart, as if each of its entries were alone.
    """
    _, found = np.unique(_reads(entries), return_inverse=True)
    found = found.reshape(-1)
    patterns: Array = np.bincount(found, weights=1 << group).astype(np.int64)
    row = np.zeros(len(patterns), dtype=np.int64)
    row[found] = entries.row
    cells, first, counts = np.unique(row * 2**ASIDE + patterns, return_index=True, return_counts=True)
    several = np.isin(cells % 2**ASIDE, RANKED[:-ASIDE])
    apart = np.zeros(len(patterns), dtype=bool)
    if chains == 2:
        apart[first[several & (counts % 2 == 1)]] = True
    rank = np.zeros(2**ASIDE, dtype=np.int64)
    rank[list(RANKED)] = np.arange(PATTERNS)
    ranks: Array = rank[np.where(apart[found], 1 << group, patterns[found])]
    return ranks


def _reads(entries: Entries) -> Array:
    """A number for each row, channel and row of a kernel."""
    tall = int(np.ptp(entries.y)) + 1 if len(entries) else 1
    reads: Array = (entries.row.astype(np.int64) * 2**24 + entries.channel) * tall + (
        entries.y - entries.y.min(initial=0)
    )
    return reads


def packed(entries: Entries, place: Array, group: Array, ranks: Array, offsets: Array) -> tuple[Array, Array]:
    """Where the words of each row and pattern begin, and the words.

    Those are, for each load, an offset and a weight for each group of the pattern. `place` is each entry's row.
    """
    cells = place * PATTERNS + ranks
    order = np.lexsort((group, entries.y, entries.channel, cells))
    lowest = np.array(RANKED) & -np.array(RANKED)  # the group that comes first, as a bit
    first = (lowest[ranks] == 1 << group)[order]
    at = np.arange(len(order)) + np.cumsum(first)  # where weights go
    words = np.zeros(len(order) + int(first.sum()), dtype=np.int32)
    words[at] = entries.weight[order].astype(np.float32).view(np.int32)
    words[at[first] - 1] = offsets[order][first]
    count = (int(place.max(initial=-1)) + 1) * PATTERNS
    sizes = np.bincount(cells, minlength=count) + np.bincount(cells[order][first], minlength=count)
    return np.concatenate([[0], np.cumsum(sizes)]), words

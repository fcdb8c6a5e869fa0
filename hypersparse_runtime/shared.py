"""Entries that are added up together because they read the same: the taps of one row of a kernel."""

import numpy as np

from hypersparse_runtime.layers import Array, Entries

ASIDE, MOST = 3, 8  # distances to the side, and vectors of a tile: as in shared.h
PATTERNS = 2**ASIDE - 1


def spared(entries: Entries, rows: Array) -> Array:
    """How many loads each of the rows is spared, if a vector is loaded once for the taps of a kernel's row."""
    _, first = np.unique(_reads(entries), return_index=True)
    loads = np.bincount(entries.row[first], minlength=int(rows.max(initial=0)) + 1)
    fewer: Array = (np.bincount(entries.row, minlength=len(loads)) - loads)[rows]
    return fewer


def patterns_of(entries: Entries, group: Array) -> Array:
    """For each entry the groups of all entries that read the same for its row, as bits."""
    _, found = np.unique(_reads(entries), return_inverse=True)
    found = found.reshape(-1)
    patterns: Array = np.bincount(found, weights=1 << group).astype(np.int64)[found]
    return patterns


def _reads(entries: Entries) -> Array:
    """A number for each row, channel and row of a kernel."""
    tall = int(np.ptp(entries.y)) + 1 if len(entries) else 1
    reads: Array = (entries.row.astype(np.int64) * 2**24 + entries.channel) * tall + (
        entries.y - entries.y.min(initial=0)
    )
    return reads


def packed(entries: Entries, place: Array, group: Array, patterns: Array, offsets: Array) -> tuple[Array, Array]:
    """Where the words of each row and pattern begin, and the words.

    Those are, for each load, an offset and a weight for each group of the pattern. `place` is each entry's row.
    """
    cells = place * PATTERNS + patterns - 1
    order = np.lexsort((group, entries.y, entries.channel, cells))
    first = (patterns & ((1 << group) - 1))[order] == 0  # of the groups that read there
    at = np.arange(len(order)) + np.cumsum(first)  # where weights go
    words = np.zeros(len(order) + int(first.sum()), dtype=np.int32)
    words[at] = entries.weight[order].astype(np.float32).view(np.int32)
    words[at[first] - 1] = offsets[order][first]
    count = (int(place.max(initial=-1)) + 1) * PATTERNS
    sizes = np.bincount(cells, minlength=count) + np.bincount(cells[order][first], minlength=count)
    return np.concatenate([[0], np.cumsum(sizes)]), words

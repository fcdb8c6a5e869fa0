"""The data that the kernel reads: the words of a step, in the order of `struct step` in kernel.h, and constants."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.plane_layout import ALIGNED
from hypersparse_runtime.sparse_layers import Array

_KINDS = """
conv dot split max_pool mean pack unpack conv_few_taps conv_small_planes conv_shared_loads repeat_rows clear softmax
log_softmax copy elementwise arithmetic layer_norm group_norm matmul softmax_planes reduce embedding resample lstm gru
winograd_input winograd_output conv_int8 largest quantize
"""
KINDS = tuple(_KINDS.split())  # enum kind in kernel.h, in its order
_NAMES = """
kind level input output input_plane output_plane rows channels groups distances shifts starts entries edge_masks bias
plane plane_size mask residual lazy_bias relu clip segments segment_stride segment_length pad_first pad_length
pad_stride pad_end tile tile_outer chains blocks lanes lane_shift height width pitch fold out_height out_width
out_pitch out_fold kernel_y kernel_x stride_y stride_x pad_y pad_x
"""
FIELDS = tuple(_NAMES.split())  # of struct step in kernel.h, in its order
STEP = np.dtype([(name, np.int64) for name in FIELDS])
NONE = -1
Ints = NDArray[np.int32]


def to_int32(array: Array) -> Ints:
    """Convert to 32-bit integers; raises GraphError if a number does not fit."""
    given = np.asarray(array)
    wide = given.size and given.dtype.itemsize > 4
    if wide and not -(2**31) <= int(given.min()) <= int(given.max()) < 2**31:
        raise GraphError(f"The network needs offsets up to {int(given.max())}; the kernel counts in 32 bits.")
    return given.astype(np.int32)


@dataclass
class Tables:
    """Constants, one after another in 32-bit words."""

    parts: list[Ints] = field(default_factory=list)
    words: int = 0
    known: dict[object, int] = field(default_factory=dict)  # where arrays begin that several steps read

    def add(self, array: Array, dtype: type = np.int32) -> int:
        """Append an array and return its position."""
        given = to_int32(array) if dtype is np.int32 else np.asarray(array)
        part = np.ascontiguousarray(given, dtype=dtype).reshape(-1).view(np.int32)
        at = self.words
        self.parts.append(part)
        if len(part) % 2:  # entries are pairs of eight bytes
            self.parts.append(np.zeros(1, dtype=np.int32))
        self.words += len(part) + len(part) % 2
        return at

    def once(self, key: object, make: Callable[[], Array]) -> int:
        """The position of the array with this key, which is created on first use."""
        if key not in self.known:
            self.known[key] = self.add(make())
        return self.known[key]

    def all(self) -> Ints:
        """All constants in one array."""
        return np.concatenate([*self.parts, np.zeros(2 * ALIGNED, dtype=np.int32)])

"""What the kernel reads: the words of a step, in the order of `struct step` in kernel.h, and tables of constants."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.ir import Array
from hypersparse_runtime.layout import ALIGNED

KINDS = (
    *("conv", "dot", "split", "max_pool", "mean", "pack", "unpack", "direct", "square", "shared", "echo", "clear"),
    *("softmax", "log_softmax"),
)
_NAMES = """
kind level input output input_plane output_plane rows channels groups distances shifts starts entries sides bias
plane plane_size mask residual residues relu clip segments segment_stride segment_length pad_first pad_length
pad_stride pad_end tile tile_outer chains blocks lanes lane_shift height width pitch fold out_height out_width
out_pitch out_fold kernel_y kernel_x stride_y stride_x pad_y pad_x
"""
FIELDS = tuple(_NAMES.split())  # of struct step in kernel.h, in its order
STEP = np.dtype([(name, np.int64) for name in FIELDS])
NONE = -1


@dataclass
class Tables:
    """Constants, one after another in 32-bit words."""

    parts: list[NDArray[np.int32]] = field(default_factory=list)
    words: int = 0

    def add(self, array: Array, dtype: type = np.int32) -> int:
        """Where the array begins."""
        part = np.ascontiguousarray(array, dtype=dtype).reshape(-1).view(np.int32)
        at = self.words
        self.parts.append(part)
        if len(part) % 2:  # entries are pairs of eight bytes
            self.parts.append(np.zeros(1, dtype=np.int32))
        self.words += len(part) + len(part) % 2
        return at

    def all(self) -> NDArray[np.int32]:
        """In one array."""
        return np.concatenate([*self.parts, np.zeros(2 * ALIGNED, dtype=np.int32)])

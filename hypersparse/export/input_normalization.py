"""`Normalisation`: the preprocessing of pixels that a file describes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Normalisation:
    """(pixel / scale - mean) / std, by channel."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def read(cls, about: Mapping[str, Any], channels: int) -> Self | None:
        """The preprocessing in a file; identity if there is none or it is invalid.

        >>> Normalisation.read({"normalisation": {"scale": 255, "mean": [0.5], "std": [0.25]}}, 1)
        Normalisation(scale=255.0, mean=(0.5,), std=(0.25,))
        """
        said = about.get("normalisation")
        if not isinstance(said, Mapping):
            return None
        try:
            mean, std = (tuple(float(value) for value in said[name]) for name in ("mean", "std"))
            scale = float(said["scale"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        whole = len(mean) == len(std) == channels and all(isfinite(value) for value in (*mean, *std, scale))
        return cls(scale, mean, std) if whole and scale > 0 and all(value > 0 for value in std) else None

    def __call__(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Normalize a batch [N, C, ...]."""
        shape = (-1, *[1] * (pixels.ndim - 2))
        mean, std = (np.array(values, np.float32).reshape(shape) for values in (self.mean, self.std))
        return np.ascontiguousarray((pixels.astype(np.float32) / self.scale - mean) / std, np.float32)

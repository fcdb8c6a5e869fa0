"""t-SNE coordinates, stored so that they are computed once."""

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import DataError
from hypersparse.storage.files import make_folder
from hypersparse.storage.record import write_record

PERPLEXITY = 30.0


@dataclass(frozen=True, eq=False)
class Points:
    """Coordinates of images on a map."""

    coordinates: NDArray[np.float32]  # [N, 2]
    source: str  # what the vectors are, in words


def key_of(identity: str, places: NDArray[np.int64], *, perplexity: float, seed: int) -> str:
    """A key of a map: its vectors, images and t-SNE settings."""
    text = f"{identity} {perplexity} {seed} ".encode() + places.astype(np.int64).tobytes()
    return hashlib.sha256(text).hexdigest()[:16]


def cached_points(path: Path, key: str, source: str, make: Callable[[], NDArray[np.float32]]) -> tuple[Points, bool]:
    """Stored points with this key, or new ones from `make`; and whether they were stored."""
    kept = _read(path, key)
    if kept is not None:
        return Points(kept, source), True
    coordinates = make()
    make_folder(path.parent)
    write_record(path, {"key": np.array(key), "source": np.array(source), "coordinates": coordinates})
    return Points(coordinates, source), False


def _read(path: Path, key: str) -> NDArray[np.float32] | None:
    """Stored points, or None if the file is missing, damaged or of another map."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["key"]) != key:
                return None
            kept: NDArray[np.float32] = arrays["coordinates"]
            return kept
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        return None


def embed(vectors: NDArray[np.float32], *, perplexity: float, seed: int) -> NDArray[np.float32]:
    """t-SNE to two dimensions."""
    from sklearn.manifold import TSNE

    if len(vectors) <= perplexity:
        raise DataError(f"A map needs more than {perplexity:g} images (the perplexity); got {len(vectors)}.")
    layout = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=-1)
    return np.asarray(layout.fit_transform(vectors), dtype=np.float32)

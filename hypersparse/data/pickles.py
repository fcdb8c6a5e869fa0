"""Unpickling of CIFAR's files: a pickle is a program, so only the names that arrays of numbers need are imported."""

import io
import pickle
from typing import Any

from hypersparse.errors import DataError

ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(f"it imports {module}.{name}, which a data file does not need")
        # `numpy.core` is the old name of `numpy._core`, and warns.
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_pickle(content: bytes, name: str) -> dict[str, Any]:
    """Read a pickled dict of arrays, lists, numbers and text, such as Python 2 wrote; `name` is used in errors.

    >>> read_pickle(pickle.dumps({b"labels": [3, 1]}, protocol=3), "train")
    {'labels': [3, 1]}
    """
    try:
        table = _Reader(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(table, dict):
            raise ValueError(f"it holds a {type(table).__name__}, not a dict")
        return {key.decode("latin1") if isinstance(key, bytes) else str(key): table[key] for key in table}
    except Exception as error:  # an invalid pickle can raise any error
        raise DataError(f"{name} is not a data file that can be trusted: {error}.") from error

"""Reads the pickles of CIFAR and refuses every other kind.

A pickle is a program. This reader gives it nothing to call but the stand-ins below, which build byte
arrays and text; numpy's own unpickling, which can make arrays of arbitrary objects, is never reached.
The stand-ins are instances without attributes, so a pickle cannot change them either.
"""

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from hypersparse.errors import DataError


class _UInt8:
    """Stands for `numpy.dtype("u1")`; its state (byte order and the like) means nothing for bytes."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        return


class _Array:
    """Stands for an array of bytes until the pickle tells its content."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: npt.NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _UInt8, bool, bytes]) -> None:
        _, shape, kind, fortran_order, content = state
        if not isinstance(kind, _UInt8) or fortran_order or not isinstance(content, bytes):
            raise ValueError("an array is not made of bytes in C order")
        self.value = np.frombuffer(content, np.uint8).reshape(shape)


class _Reconstruct:
    """Stands for numpy's `_reconstruct(ndarray, (0,), b"b")`."""

    __slots__ = ()

    def __call__(self, kind: object, shape: object, code: object) -> _Array:
        return _Array()


class _DType:
    """Stands for the class `numpy.dtype`."""

    __slots__ = ()

    def __call__(self, code: str | bytes, align: object, copy: object) -> _UInt8:
        if code not in ("u1", b"u1"):
            raise ValueError(f"an array of kind {code!r} where only bytes are allowed")
        return _UInt8()


class _Encode:
    """Stands for `_codecs.encode`, by which Python 3 writes bytes into old pickles."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        if type(text) is not str or encoding != "latin1":
            raise ValueError(f"text in the encoding {encoding!r} where only latin1 is allowed")
        return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _DType(),
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("_codecs", "encode"): _Encode(),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise DataError(f"it asks for {module}.{name}, which image data has no use for")
        return _STAND_INS[module, name]


def read_pickle(content: bytes, name: str) -> dict[str, Any]:
    """A pickled dict of byte arrays, lists, numbers and text, as Python 2 wrote it; `name` is for errors.

    >>> read_pickle(pickle.dumps({b"labels": [3, 1]}, protocol=2), "train")
    {'labels': [3, 1]}
    """
    try:
        table = _Reader(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(table, dict):
            raise ValueError(f"it holds a {type(table).__name__}, not a dict")
        return {_text(key): _finished(value) for key, value in table.items()}
    except Exception as error:  # a pickle that is not what it should be can fail in any way at all
        raise DataError(f"{name} is not a data file that can be trusted: {error}.") from error


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _finished(value: object) -> object:
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise ValueError("an array has no content")
    return value.value

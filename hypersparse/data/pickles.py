"""Restricted unpickling for the files of CIFAR and CIFAR-N.

A pickle is a program. The only callables this reader offers it are the stand-ins below, which build arrays of
numbers and text. Numpy's own unpickling, which can build arrays of arbitrary objects, is never called.
A pickle cannot set the state of the stand-ins, so it cannot change them.
"""

import io
import pickle
import pickletools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hypersparse.errors import DataError

BYTES = "u1"
LABELS = "i8"  # numpy's code of int64


class _ElementType:
    """Stand-in for a `numpy.dtype`; only the byte order of its state is read."""

    __slots__ = ("_code",)

    def __init__(self, code: str) -> None:
        self._code = code

    def __setstate__(self, state: Sequence[Any]) -> None:
        if state[1] not in ("<", b"<", "|", b"|"):
            raise ValueError("an array is not in little-endian order")

    def read(self, content: bytes) -> npt.NDArray[Any]:
        """The numbers in these bytes as a 1-D array."""
        return np.frombuffer(content, np.dtype(f"<{self._code}"))


class _Array:
    """Stand-in for an array until the pickle sets its content."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: npt.NDArray[Any] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _ElementType, bool, bytes]) -> None:
        _, shape, element_type, fortran_order, content = state
        if not isinstance(element_type, _ElementType) or fortran_order or not isinstance(content, bytes):
            raise ValueError("an array is not made of bytes in C order")
        self.value = element_type.read(content).reshape(shape)


class _Reconstruct:
    """Stand-in for numpy's `_reconstruct(ndarray, (0,), b"b")`."""

    __slots__ = ()

    def __call__(self, cls: object, shape: object, code: object) -> _Array:
        return _Array()


class _DType:
    """Stand-in for the class `numpy.dtype`."""

    __slots__ = ("_allowed",)

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)

    def __setstate__(self, state: object) -> None:
        raise ValueError("it tries to change numpy.dtype")  # without this method, pickle could set `_allowed`

    def __call__(self, code: str | bytes, align: object, copy: object) -> _ElementType:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if text not in self._allowed:
            raise ValueError(f"an array of type {code!r} where only {' and '.join(self._allowed)} is allowed")
        return _ElementType(text)


class _Encode:
    """Stand-in for `_codecs.encode`, with which Python 3 stores bytes in old pickle protocols."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        if type(text) is not str or encoding != "latin1":
            raise ValueError(f"text in the encoding {encoding!r} where only latin1 is allowed")
        return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("_codecs", "encode"): _Encode(),
}


class _Reader(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, kinds: Sequence[str]) -> None:
        super().__init__(stream, encoding="bytes")
        self._allowed = {**_STAND_INS, ("numpy", "dtype"): _DType(kinds)}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise DataError(f"it imports {module}.{name}, which a data file does not need")
        return self._allowed[module, name]


def read_pickle(content: bytes, name: str, *, kinds: Sequence[str] = (BYTES,), after: int = 0) -> dict[str, Any]:
    """Read a pickled dict of arrays, lists, numbers and text, written by Python 2 or 3.

    `name` is used in errors, `kinds` are the permitted array types, and `after` is the number of pickles to skip.

    >>> read_pickle(pickle.dumps({b"labels": [3, 1]}, protocol=2), "train")
    {'labels': [3, 1]}
    """
    try:
        stream = io.BytesIO(content)
        for _ in range(after):
            _Reader(stream, kinds).load()
        table = _Reader(stream, kinds).load()
        if not isinstance(table, dict):
            raise ValueError(f"it holds a {type(table).__name__}, not a dict")
        return {_as_text(key): _content(value) for key, value in table.items()}
    except Exception as error:  # an invalid pickle can raise any error
        raise DataError(f"{name} is not a data file that can be trusted: {error}.") from error


def check_memo(content: bytes, name: str, *, pickles: int = 1) -> None:
    """Refuse pickles with a large memo index: Python allocates memory for all indices below it.

    >>> check_memo(b"]r\\xff\\xff\\xff\\xff.", "labels.pt")
    Traceback (most recent call last):
    hypersparse.errors.DataError: labels.pt is not a data file that can be trusted: its memo has 4294967296 entries.
    """
    stream = io.BytesIO(content)
    try:
        for _ in range(pickles):
            for opcode, index, _ in pickletools.genops(stream):
                if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(str(index)) > len(content):
                    raise ValueError(f"its memo has {int(str(index)) + 1} entries")
    except Exception as error:  # an invalid pickle can raise any error
        raise DataError(f"{name} is not a data file that can be trusted: {error}.") from error


def _as_text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _content(value: object) -> object:
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise ValueError("an array has no content")
    return value.value

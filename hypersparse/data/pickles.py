"""Reads the pickles of CIFAR and CIFAR-N and refuses every other kind.

A pickle is a program. This reader gives it nothing to call but the stand-ins below, which build arrays of
plain numbers and text; numpy's own unpickling, which can make arrays of arbitrary objects, is never reached.
The stand-ins are instances that a pickle cannot give another state, so it cannot change them either.
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
LABELS = "i8"  # what numpy's whole numbers are pickled as


class _Kind:
    """Stands for a `numpy.dtype`; of its state only the byte order means something."""

    __slots__ = ("_code",)

    def __init__(self, code: str) -> None:
        self._code = code

    def __setstate__(self, state: Sequence[Any]) -> None:
        if state[1] not in ("<", b"<", "|", b"|"):
            raise ValueError("an array is not in little-endian order")

    def read(self, content: bytes) -> npt.NDArray[Any]:
        """The numbers in these bytes, as one row."""
        return np.frombuffer(content, np.dtype(f"<{self._code}"))


class _Array:
    """Stands for an array until the pickle tells its content."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: npt.NDArray[Any] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Kind, bool, bytes]) -> None:
        _, shape, kind, fortran_order, content = state
        if not isinstance(kind, _Kind) or fortran_order or not isinstance(content, bytes):
            raise ValueError("an array is not made of bytes in C order")
        self.value = kind.read(content).reshape(shape)


class _Reconstruct:
    """Stands for numpy's `_reconstruct(ndarray, (0,), b"b")`."""

    __slots__ = ()

    def __call__(self, kind: object, shape: object, code: object) -> _Array:
        return _Array()


class _DType:
    """Stands for the class `numpy.dtype`."""

    __slots__ = ("_allowed",)

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)

    def __setstate__(self, state: object) -> None:
        raise ValueError("it wants to change what numpy.dtype is")  # without this method, pickle could set `_allowed`

    def __call__(self, code: str | bytes, align: object, copy: object) -> _Kind:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if text not in self._allowed:
            raise ValueError(f"an array of kind {code!r} where only {' and '.join(self._allowed)} is allowed")
        return _Kind(text)


class _Encode:
    """Stands for `_codecs.encode`, by which Python 3 writes bytes into old pickles."""

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
            raise DataError(f"it asks for {module}.{name}, which data has no use for")
        return self._allowed[module, name]


def read_pickle(content: bytes, name: str, *, kinds: Sequence[str] = (BYTES,), after: int = 0) -> dict[str, Any]:
    """A pickled dict of arrays, lists, numbers and text, as Python 2 wrote it; `name` is for errors.

    `kinds` are the numbers that arrays may have, and `after` counts the pickles that stand before this one.

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
        return {_text(key): _finished(value) for key, value in table.items()}
    except Exception as error:  # a pickle that is not what it should be can fail in any way at all
        raise DataError(f"{name} is not a data file that can be trusted: {error}.") from error


def check_memo(content: bytes, name: str, *, pickles: int = 1) -> None:
    """Refuse pickles that store at a place far behind the last one: Python makes room for all places before it.

    >>> check_memo(b"]r\\xff\\xff\\xff\\xff.", "labels.pt")
    Traceback (most recent call last):
    hypersparse.errors.DataError: labels.pt is not a data file that can be trusted: it asks for 4294967296 places.
    """
    stream = io.BytesIO(content)
    try:
        for _ in range(pickles):
            for opcode, place, _ in pickletools.genops(stream):
                if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(str(place)) > len(content):
                    raise ValueError(f"it asks for {int(str(place)) + 1} places")
    except Exception as error:  # as below
        raise DataError(f"{name} is not a data file that can be trusted: {error}.") from error


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _finished(value: object) -> object:
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise ValueError("an array has no content")
    return value.value

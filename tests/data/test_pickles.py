import copyreg
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypersparse.data.pickles import read_pickle
from hypersparse.errors import DataError


def python2_array(content: bytes, shape: tuple[int, int], kind: bytes = b"u1") -> bytes:
    """A pickled {"data": array} in the opcodes Python 2 wrote: byte strings, `numpy.core`."""
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    dtype = b"cnumpy\ndtype\n(U" + bytes([len(kind)]) + kind + b"K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ"
    dtype += b"\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01(K%cK%ct" % shape + dtype + b"I00\nT" + struct.pack("<i", len(content)) + content + b"tb"
    return b"\x80\x02}U\x04data" + reconstruct + state + b"s."


def test_reads_pickles_of_python_2() -> None:
    table = read_pickle(python2_array(bytes([0, 1, 2, 253, 254, 255]), (2, 3)), "train")
    assert table["data"].dtype == np.uint8
    assert table["data"].tolist() == [[0, 1, 2], [253, 254, 255]]


@pytest.mark.parametrize("protocol", [3, 4])
def test_reads_pickles_of_python_3(protocol: int) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    content = pickle.dumps({b"data": array, "labels": [1, 2], b"names": [b"cat"]}, protocol=protocol)
    table = read_pickle(content, "train")
    np.testing.assert_array_equal(table["data"], array)
    assert (table["labels"], table["names"]) == ([1, 2], [b"cat"])


class Hostile:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_cannot_run_a_command(tmp_path: Path, protocol: int) -> None:
    hostile = Hostile(os.system, f"touch {tmp_path}/owned")
    content = pickle.dumps({"data": hostile}, protocol=protocol)
    with pytest.raises(DataError, match=r"train is not a data file that can be trusted: it imports .*system"):
        read_pickle(content, "train")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "value",
    [
        Hostile(eval, "1 + 1"),
        Hostile(getattr, "text", "format"),
        Hostile(__import__, "os"),
        np.array([print], dtype=object),
        np.float64(1.5),
        {1, 2},
        Path("x"),
    ],
)
def test_nothing_but_arrays_can_be_built(value: object) -> None:
    with pytest.raises(DataError, match="can be trusted"):
        read_pickle(pickle.dumps({"data": value}, protocol=2), "train")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(pickle.dumps([1, 2]), id="not a dict"),
        pytest.param(pickle.dumps({"data": 1})[:-4], id="truncated"),
        pytest.param(b"\x80\x02}U\x04dataU\x01xQs.", id="persistent object"),
        pytest.param(python2_array(b"\x00" * 5, (2, 3)), id="content does not fill the shape"),
        pytest.param(python2_array(b"\x00" * 6, (2, 3), b"O8"), id="array of objects"),
        pytest.param(b"\x80\x02}U\x01dcnumpy\ndtype\n}U\x08__call__K\x01sbs.", id="changes a stand-in"),
        pytest.param(
            b"\x80\x02}U\x01dcnumpy\ndtype\nN}X\x09\0\0\0__class__K\x01s\x86bs.",
            id="changes a stand-in's class",
        ),
        pytest.param(b"\x80\x02}U\x01dcnumpy\nndarray\n)\x81s.", id="makes an object of a stand-in"),
        pytest.param(b"\x80\x02}U\x01dc_codecs\nencode\n(X\x01\0\0\0xX\x05\0\0\0rot13tRs.", id="another codec"),
        pytest.param(b"\x80\x02}U\x01dcnumpy.core.multiarray\n_reconstruct\n(NNNtRs.", id="array without content"),
    ],
)
def test_a_file_that_is_not_a_pickle_is_named(content: bytes) -> None:
    with pytest.raises(DataError, match="train is not a data file that can be trusted"):
        read_pickle(content, "train")


def test_registered_extensions_cannot_be_called() -> None:
    copyreg.add_extension("os", "system", 240)
    try:
        with pytest.raises(DataError, match=r"os\.system"):
            read_pickle(b"\x80\x02}U\x01d\x82\xf0s.", "train")
    finally:
        copyreg.remove_extension("os", "system", 240)

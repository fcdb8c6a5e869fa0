"""Instructions on 64-bit ARM, counted by QEMU."""

import shutil

import pytest

from benchmarks import aarch64
from benchmarks.device_commands import _aarch64_words
from hypersparse.errors import OptionError

MISSING = [tool for tool in aarch64.TOOLS if shutil.which(tool) is None]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} is not installed")
def test_instructions_of_an_image() -> None:
    (row,) = aarch64.measure_zoo(["digits-resnet8-0.98"], [], lambda row: None)
    assert 46_000 / 4 < row["sparse_runtime"] < 500_000  # it has 46,000 products, four to a vector
    assert row["onnxruntime"] is None


def test_missing_programs_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aarch64, "TOOLS", ("no-such-compiler",))
    with pytest.raises(OptionError, match="no-such-compiler is not installed; Debian"):
        aarch64.measure_zoo(["digits-resnet8-0.98"], [], lambda row: None)


def test_a_row_in_words() -> None:
    words = _aarch64_words({"name": "a", "sparse_runtime": 2.7e6, "onnxruntime": 1.096e8, "fewer": 40.6})
    assert list(words.values()) == ["a", "2.70 M", "109.6 M", "40.6x"]

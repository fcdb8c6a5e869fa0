"""The benchmark in a browser, without the engine it compares with: what is printed, and what is said."""

from pathlib import Path

import pytest

from benchmarks import web
from benchmarks.__main__ import _web_words
from hypersparse.errors import OptionError
from tests.browser import CHROMIUM

ROW = web.WebRow(
    model="resnet32",
    sparsity=0.99,
    mask="trained",
    browser="156.0.0.0",
    sparse_milliseconds=2.0,
    sparse_low=1.5,
    sparse_high=2.5,
    dense_milliseconds=60.0,
    dense_low=50.0,
    dense_high=70.0,
    speedup=30.0,
    difference=5e-7,
    bytes=98_000,
    dense_bytes=7_479_000,
    load_milliseconds=40.0,
    dense_load_milliseconds=90.0,
)


def test_a_row_as_words_and_as_json() -> None:
    words = _web_words(ROW)
    assert (words["sparsity"], words["ms"], words["dense ms"], words["speedup"]) == ("99 %", "2", "60", "30x")
    assert (words["kB"], words["dense kB"], words["difference"]) == ("98", "7,479", "5e-07")
    assert web.as_json([ROW])[0]["dense_bytes"] == 7_479_000


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_a_folder_that_is_not_the_engine_is_said(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no onnxruntime-web.*unpacked"):
        web.WebBench(tmp_path, 1, tmp_path).run([], lambda row: None)

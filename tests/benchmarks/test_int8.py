"""Files of the zoo in fp16 and int8."""

from pathlib import Path

import pytest

from benchmarks.device_commands import _int8_words
from benchmarks.int8 import measure_zoo


def test_sizes_and_accuracies(tmp_path: Path) -> None:
    (row,) = measure_zoo(["digits-resnet8-0.95"], [tmp_path], lambda row: None)
    assert row["int8_bytes"] < row["fp16_bytes"] < row["exact_bytes"]
    assert row["smaller"] == pytest.approx(row["fp16_bytes"] / row["int8_bytes"])
    assert row["images"] == 360
    assert abs(row["int8_accuracy"] - row["exact_accuracy"]) <= row["changed"] / 360 <= 0.01
    assert _int8_words(row)["predicted otherwise"] == f"{row['changed']} of 360"

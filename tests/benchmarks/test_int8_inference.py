"""Layers in int8 against fp32: the rows of the measurement."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import int8_inference
from benchmarks.int8_inference import accuracy_row, speed_rows
from hypersparse_runtime.kernel_library import load_kernel


def test_accuracy_before_and_after(tmp_path: Path) -> None:
    row = accuracy_row("digits-resnet8-0.95", [tmp_path])
    assert row["images"] == 360
    assert abs(row["int8_accuracy"] - row["exact_accuracy"]) <= row["changed"] / 360 <= 0.01
    assert row["int8_milliseconds"] > 0


def test_engines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_inference, "ROUNDS", 1)
    monkeypatch.setattr(int8_inference, "BATCHES", (1,))
    monkeypatch.setattr(int8_inference, "DENSE", ("torch",))
    monkeypatch.setattr(int8_inference, "dense_int8", lambda network: lambda images: np.ones((len(images), 10)))
    (row,) = speed_rows("vgg19", 0.98)
    times = row["milliseconds"]
    assert row["speedup_int8"] == times["torch"] / times["int8"]
    assert (row["int8_layers"] > 0) == load_kernel().has_int8
    assert row["difference"] < 0.05 < row["difference_dense_int8"]

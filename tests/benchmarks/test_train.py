import json
import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import engines
from benchmarks.__main__ import app
from benchmarks.train import KEYS, add_speedups_
from hypersparse.errors import OptionError

SMALL = ("train", "--quick", "--device", "cpu", "--models", "resnet8")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_a_quick_bench_prints_a_table_and_writes_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    text = run(*SMALL, "--out", str(file))
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    cells = [(row["engine"], row["phase"]) for row in rows]
    phases = ("plain", "regularized", "masked")
    assert cells == [(engine, phase) for engine in ("reference", "eager") for phase in phases]
    for row in rows:
        assert tuple(row)[: len(KEYS)] == KEYS
        assert row["model"] == "resnet8"
        assert row["runs"] == 1
        assert row["seconds_per_epoch"] > 0
        assert row["speedup"] > 0
        assert row["floor_share"] > 0
        assert row["memory_bytes"] is None
        assert row["scaled"] is True
        assert row["quick"] is True
        assert (row["scoring_seconds"] > 0) == (row["phase"] == "regularized")
    assert text.count("resnet8") >= 6
    assert "timed steps" in text


def test_what_cannot_be_measured_is_said_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        logging.getLogger("hypersparse").warning("a reason")
        raise RuntimeError("no such luck\nand a long trace")

    monkeypatch.setattr(engines, "measure", fails)
    text = run(*SMALL, "--engines", "eager")
    assert "a reason" in text
    assert "Not measured: resnet8 eager: no such luck" in text
    assert "trace" not in text


def test_what_time_does_not_allow_for_is_said() -> None:
    text = run(*SMALL, "--minutes", "0")
    assert "Skipped for lack of time: resnet8 reference" in text
    assert "Skipped for lack of time: resnet8 eager" in text


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("--models", "resnet33"), "There is no model"),
        (("--engines", "fast"), "There is no engine"),
        (("--runs", "many"), "whole numbers"),
        (("--precision", "fp8"), "precision"),
        (("--device", "tpu"), "device"),
    ],
)
def test_a_wrong_choice_is_one_sentence_before_anything_is_measured(option: tuple[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        run("train", "--quick", *option)


def test_a_speedup_is_over_the_same_model_and_phase() -> None:
    keys = ("model", "phase", "engine", "seconds_per_epoch")
    cells = [("a", "plain", "reference", 8.0), ("a", "plain", "cudagraph", 2.0), ("a", "masked", "cudagraph", 2.0)]
    rows = [dict(zip(keys, cell, strict=True)) for cell in cells]
    add_speedups_(rows)
    assert [row["speedup"] for row in rows] == [1.0, 4.0, None]

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

from benchmarks import inference
from benchmarks.__main__ import MASKS, app
from benchmarks.inference import KEYS, InferenceBench, InferenceCase, add_speedups_, plan_cases, time_in_turns
from benchmarks.inference_engines import InferenceEngine, build_engine
from benchmarks.networks import MODELS, front_loaded_counts, load_or_generate, prune_clustered_
from benchmarks.timing import Case
from hypersparse.errors import OptionError
from hypersparse.export.sparse_file import save_sparse
from hypersparse.models import build
from hypersparse.sparsity.distributions import PAPER_SPARSITIES

SMALL = ("inference", "--quick", "--models", "resnet8", "--rounds", "1", "--sparsity", "0.98")


def test_speedups_are_over_the_better_dense_engine() -> None:
    rows = [
        {"engine": "torch", "milliseconds": 30.0, "milliseconds_low": 30.0},
        {"engine": "onnxruntime", "milliseconds": 6.0, "milliseconds_low": 5.0},
        {"engine": "openvino", "milliseconds": 8.0, "milliseconds_low": 4.0},
        {"engine": "hypersparse", "milliseconds": 0.5, "milliseconds_low": 0.4},
    ]
    add_speedups_(rows)
    assert [row["speedup"] for row in rows] == [0.2, 1.0, 0.75, 12.0]
    assert rows[-1]["speedup_low"] == 10.0
    add_speedups_(rows[:1])
    assert rows[0]["speedup"] is None


def test_engines_take_turns() -> None:
    calls: list[str] = []

    def slow(name: str) -> Any:
        def predict(images: np.ndarray) -> np.ndarray:
            calls.append(name)
            return sum(images + n for n in range(3000))  # type: ignore[return-value]

        return predict

    engines = [InferenceEngine(name, slow(name), 0, 0) for name in ("a", "b")]
    times = time_in_turns(engines, np.zeros((8, 3, 32, 32), dtype=np.float32), 2)
    assert calls == ["a", "b", "a", "b", "a", "b"]  # the first two calls say how many go in a turn
    assert len(times["a"].wall) == len(times["b"].cpu) == 2


def test_no_round_begins_after_its_time_but_the_first_ones() -> None:
    engine = InferenceEngine("a", lambda images: images, 0, 0)
    images = np.zeros((1, 1), dtype=np.float32)
    all_of_them = time_in_turns([engine], images, 9)["a"].wall
    assert len(time_in_turns([engine], images, 9, until=0.0)["a"].wall) == len(all_of_them) // 9 * inference.MIN_ROUNDS


def test_cases_without_time_left_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, ends = list[InferenceCase](), list[float]()

    def measure(self: InferenceBench, case: InferenceCase, *, until: float) -> None:
        measured.append(case)
        ends.append(until)
        time.sleep(0.06)

    monkeypatch.setattr(InferenceBench, "_measure", measure)
    bench = InferenceBench(["torch"], 1, MASKS, seconds=0.1)
    cases = list(plan_cases(["resnet8"], [0.9], [1, 2, 4, 8], [1]))
    began = time.perf_counter()
    bench.run(cases, NoBar())
    assert 1 <= len(measured) <= 2  # a busy machine sleeps longer
    assert began + 0.02 < ends[0] < began + 0.06  # a quarter of the time
    assert bench.notes == [f"{4 - len(measured)} of 4 cases were left out: the time is over."]


class NoBar:
    def began(self, case: Case) -> None:
        """Nothing is shown."""

    def ended(self, case: Case, seconds: float) -> None:
        """Nothing is shown."""


@pytest.mark.slow
def test_an_engine_with_wrong_outputs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(engine: str, *asked: Any, **options: Any) -> InferenceEngine:
        made = build_engine(engine, *asked, **options)
        return made if engine == "torch" else replace(made, predict=lambda images: 2 * made.predict(images))

    monkeypatch.setattr(inference, "build_engine", doubled)
    done = CliRunner().invoke(app, [*SMALL, "--engines", "torch,hypersparse"])
    assert done.exit_code == 1
    assert "hypersparse is wrong on resnet8 98 %, batch 1, 1 thread: off by 1e+00" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sparsity", PAPER_SPARSITIES)
def test_networks_with_trained_masks_match_pytorch(model: str, sparsity: float) -> None:
    found, batch = load_or_generate(model, sparsity, MASKS), 16 if sparsity in (0.98, 0.998) else 1
    images = np.random.default_rng(0).normal(size=(batch, 3, 32, 32)).astype(np.float32)
    wanted, got = (
        build_engine(each, found, batch=batch, threads=1).predict(images) for each in ("torch", "hypersparse")
    )
    assert np.abs(got - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert len(np.unique(wanted.round(3))) > 5  # activations keep their scale


def test_every_model_and_sparsity_has_a_trained_mask() -> None:
    assert {file.stem for file in MASKS.glob("*.hsp")} == {f"{m}-{s:g}" for m in MODELS for s in PAPER_SPARSITIES}
    assert sum(file.stat().st_size for file in MASKS.glob("*.hsp")) < 2e6


def test_a_pause_before_each_turn_lets_threads_of_others_settle() -> None:
    ends: list[float] = []
    begins: list[float] = []

    def predict(images: np.ndarray) -> np.ndarray:
        begins.append(time.perf_counter())
        enough = time.process_time() + 0.006  # longer than a turn, even on a busy machine
        while time.process_time() < enough:
            pass
        ends.append(time.perf_counter())
        return images

    time_in_turns(
        [InferenceEngine(name, predict, 0, 0) for name in "ab"], np.zeros((1, 1), dtype=np.float32), 2, pause=0.02
    )
    gaps = [begin - end for begin, end in zip(begins[2:], ends[1:-1], strict=True)]
    assert len(gaps) == 8  # of each pair the first is not timed
    assert min(gaps[::2]) >= 0.02


def test_synthetic_masks_keep_the_requested_number() -> None:
    model = build("vgg11", shape=(3, 32, 32), classes=10)
    prune_clustered_(model, 0.98)
    weights = [p for p in model.parameters() if p.dim() > 1]
    kept = sum(int((p != 0).sum()) for p in weights)
    assert kept / sum(p.numel() for p in weights) == pytest.approx(0.02, rel=0.02)
    assert front_loaded_counts([(4, 2), (2, 4)], 0.0) == [8, 8]


@pytest.mark.slow
def test_mask_files_are_used_and_reported(tmp_path: Path) -> None:
    save_sparse(
        build("resnet8", shape=(3, 32, 32), classes=10), tmp_path / "resnet8-0.98.hsp", input_shape=(3, 32, 32),
        about={"mask": "trained"},
    )  # fmt: skip
    assert load_or_generate("resnet8", 0.98, tmp_path).mask == "trained"
    assert load_or_generate("resnet8", 0.99, tmp_path).mask == "synthetic"


@pytest.mark.slow
def test_a_mask_without_weights_gets_random_weights(tmp_path: Path) -> None:
    model = build("resnet8", shape=(3, 32, 32), classes=10)
    prune_clustered_(model, 0.95)
    for weight in (parameter for parameter in model.parameters() if parameter.dim() > 1):
        weight.data = weight.data.sign()
    save_sparse(model.eval(), tmp_path / "resnet8-0.95.hsp", input_shape=(3, 32, 32), about={"mask": "only a mask"})
    found = load_or_generate("resnet8", 0.95, tmp_path)
    masks, drawn = (
        [each.weight.detach() for each in net.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
        for net in (model, found.module)
    )
    assert found.mask == "only a mask"
    assert [(weight != 0).sum() for weight in drawn] == [(weight != 0).sum() for weight in masks]
    assert all(len(weight[weight != 0].unique()) > 2 for weight in drawn if (weight != 0).sum() > 2)


def test_wrong_options_raise_an_error() -> None:
    list_of = "is a number or a list"
    for text, sentence in (("98", "fractions from 0 to below 1"), ("x", list_of), ("0.9,,1", list_of)):
        with pytest.raises(OptionError, match=sentence):
            CliRunner().invoke(app, [*SMALL, "--sparsity", text], catch_exceptions=False)
    with pytest.raises(OptionError, match="there is no folder nowhere"):
        CliRunner().invoke(app, [*SMALL, "--masks", "nowhere"], catch_exceptions=False)
    with pytest.raises(OptionError, match="did you mean `openvino`"):
        CliRunner().invoke(app, [*SMALL, "--engines", "openvin"], catch_exceptions=False)


@pytest.mark.slow
def test_a_quick_bench_prints_a_table_and_writes_rows(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = tmp_path / "rows.json"
    done = CliRunner().invoke(app, [*SMALL, "--out", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    assert {"torch", "onnxruntime", "onnxruntime-shrunk", "hypersparse"} <= {row["engine"] for row in rows}
    for row in rows:
        assert tuple(row)[: len(KEYS)] == KEYS
        assert (row["model"], row["sparsity"], row["batch"], row["threads"]) == ("resnet8", 0.98, 1, 1)
        assert row["milliseconds"] > 0
        assert row["max_difference"] < 1e-5
        assert row["bytes"] > 0
    ours = next(row for row in rows if row["engine"] == "hypersparse")
    assert ours["mask"] == "synthetic"
    assert ours["speedup"] > 1
    assert "hypersparse *" in done.output

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

from benchmarks import inference, inference_engines, turns
from benchmarks.__main__ import MASKS, app
from benchmarks.inference import KEYS, InferenceBench, InferenceCase, add_speedups_, plan_cases
from benchmarks.inference_engines import InferenceEngine, build_engine, installed, torch_threads
from benchmarks.networks import MODELS, front_loaded_counts, load_or_generate, prune_clustered_
from benchmarks.timing import Case
from benchmarks.turns import time_in_turns
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
            enough = time.process_time() + 1.1 * turns.TURN_SECONDS
            while time.process_time() < enough:
                pass
            return images

        return predict

    engines = [InferenceEngine(name, slow(name), 0, 0) for name in ("a", "b")]
    times = time_in_turns(engines, np.zeros((8, 3, 32, 32), dtype=np.float32), 2)
    assert calls == ["a", "b", "a", "b"]
    assert [len(each.wall) for each in times] == [len(each.cpu) for each in times] == [2, 2]
    assert min(min(each.cpu) for each in times) > turns.TURN_SECONDS


def test_short_calls_are_repeated_within_a_turn() -> None:
    times = time_in_turns([InferenceEngine("a", lambda images: images, 0, 0)], np.zeros((1, 1), dtype=np.float32), 3)
    assert len(times[0].wall) == 3 * turns.MAX_CALLS


def test_no_round_begins_that_would_end_after_its_time_but_the_first() -> None:
    def predict(images: np.ndarray) -> np.ndarray:
        time.sleep(0.02 / turns.MAX_CALLS)
        return images

    images, end = np.zeros((1, 1), dtype=np.float32), time.perf_counter() + 0.09
    in_time = time_in_turns([InferenceEngine("a", predict, 0, 0)], images, 99, until=end)[0].wall
    assert 1 <= len(in_time) // turns.MAX_CALLS <= 4
    late = time_in_turns([InferenceEngine("a", predict, 0, 0)], images, 99, until=0.0)[0].wall
    assert len(late) == turns.MAX_CALLS


SPARSE = ("resnet8", (0.9, 0.98))


def test_a_case_that_would_overshoot_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, ends = list[InferenceCase](), list[float]()

    def measure(self: InferenceBench, case: InferenceCase, *, until: float) -> None:
        measured.append(case)
        ends.append(until)

    network = load_or_generate("resnet8", 0.9, MASKS)
    monkeypatch.setattr(inference, "load_or_generate", lambda *asked: network)
    monkeypatch.setattr(InferenceBench, "_measure", measure)
    bench, bar = InferenceBench(["torch"], 25, MASKS, seconds=20.0), Progress()
    cases = [InferenceCase(*SPARSE, batch, 1) for batch in (1, 10**6, 2)]
    began = time.perf_counter()
    bench.run(cases, bar)
    assert measured == [cases[0], cases[2]]
    assert bench.notes[0].startswith("resnet8, batch 1000000, 1 thread was left out: it takes up to")
    assert 0 < bar.left[0] <= 20.0
    assert ends[-1] < began + 20.1
    assert bar.titles == [case.title for case in cases]


def test_estimates_follow_products_and_measured_speed() -> None:
    bench = InferenceBench(["torch", "hypersparse"], 5, MASKS)
    bench.run([], Progress())
    bench._networks = {("resnet8", each): load_or_generate("resnet8", each, MASKS) for each in SPARSE[1]}
    dense = bench._networks["resnet8", 0.9].dense_products
    sparse = sum(each.sparse_products for each in bench._networks.values())
    case = InferenceCase(*SPARSE, 64, 1)
    built = 3 * inference.BUILD_SECONDS + inference.SHORT_SECONDS  # dense PyTorch has no sparsity
    wanted = inference.PRODUCT_SECONDS * 64 * 4 * (dense + sparse)
    assert bench.estimate(case, 3) == pytest.approx(built + wanted)
    bench._rates[1, 1] = 10 * inference.PRODUCT_SECONDS  # batches of another size say little
    assert bench.estimate(case, 3) == pytest.approx(built + wanted)
    bench._rates[64, 1] = 2 * inference.PRODUCT_SECONDS
    assert bench.estimate(case, 3) == pytest.approx(built + 2 * wanted)
    bench._rates[64, 2] = inference.PRODUCT_SECONDS / 2
    assert bench.estimate(replace(case, threads=2), 3) == pytest.approx(built + wanted / 2)
    assert bench.estimate(replace(case, threads=4), 3) == pytest.approx(built + 2 * wanted)  # the slowest known


class Progress:
    def __init__(self) -> None:
        self.left, self.titles = list[float](), list[str]()

    def expects(self, seconds: float) -> None:
        self.left.append(seconds)

    def began(self, case: Case) -> None:
        self.titles.append(case.title)

    def ended(self, case: Case, seconds: float) -> None:
        """Nothing is shown."""


@pytest.mark.slow
def test_dense_engines_run_once_for_all_sparsities() -> None:
    pytest.importorskip("onnxruntime")
    bench = InferenceBench(["torch", "onnxruntime", "onnxruntime-shrunk", "hypersparse"], 1, MASKS)
    bench.run([InferenceCase("resnet32", (0.9, 0.998), 3, 1)], Progress())
    assert [(row["engine"], row["sparsity"]) for row in bench.rows] == [
        ("torch", None), ("onnxruntime", None), ("onnxruntime-shrunk", 0.9), ("onnxruntime-shrunk", 0.998),
        ("hypersparse", 0.9), ("hypersparse", 0.998),
    ]  # fmt: skip
    assert (bench.wrong, bench.notes) == ([], [])
    dense, ours = bench.rows[1], bench.rows[-1]
    assert ours["speedup"] == pytest.approx(dense["milliseconds"] / ours["milliseconds"])
    assert bench._rates[3, 1] > 0


@pytest.mark.slow
def test_a_graph_without_dead_channels_is_not_shrunk() -> None:
    network = load_or_generate("bert-4", 0.9, MASKS)
    assert network.shrunk is network.graph
    assert [*InferenceBench(["onnxruntime-shrunk"], 1, MASKS)._engines_of([network])] == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "hypersparse"])
def test_threads_of_idle_engines_take_no_time(engine: str) -> None:
    if not installed(engine):
        pytest.skip(f"{engine} is not installed")
    network = load_or_generate("resnet32", 0.98, MASKS)
    with torch_threads(2):
        made, images, spent = build_engine(engine, network, batch=1, threads=2), network.inputs(1), list[float]()
        for _ in range(10):
            made.predict(images)
            began = time.process_time()
            time.sleep(0.05)
            spent.append(time.process_time() - began)
    assert np.median(spent) < 0.01  # ONNX Runtime with its defaults takes 0.04 s


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
    gaps = [begin - end for begin, end in zip(begins[1:], ends[:-1], strict=True)]
    assert len(gaps) == 7  # of each pair the first is not timed
    assert min(gaps[1::2]) >= 0.02


def test_plans_have_a_case_for_each_model_batch_and_number_of_threads() -> None:
    cases = list(plan_cases(["resnet8", "vgg11"], [0.9, 0.98], [1, 64], [1]))
    assert [f"{case.model} {case.batch}" for case in cases] == ["resnet8 1", "resnet8 64", "vgg11 1", "vgg11 64"]
    assert {case.sparsities for case in cases} == {(0.9, 0.98)}
    assert cases[-1].title == "vgg11, batch 64, 1 thread"


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
        assert (row["model"], row["batch"], row["threads"]) == ("resnet8", 1, 1)
        assert row["sparsity"] == (0.98 if row["engine"] in ("onnxruntime-shrunk", "hypersparse") else None)
        assert row["milliseconds"] > 0
        assert row["max_difference"] < 1e-5
        assert row["bytes"] > 0
    ours = next(row for row in rows if row["engine"] == "hypersparse")
    assert ours["mask"] == "synthetic"
    assert ours["speedup"] > 1
    assert "hypersparse *" in done.output


@pytest.mark.slow
def test_a_missing_engine_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference_engines, "installed", lambda engine: "onnx" not in engine and engine != "openvino")
    done = CliRunner().invoke(app, SMALL, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output.count("onnxruntime and openvino not installed: there are no speed-ups.") == 1

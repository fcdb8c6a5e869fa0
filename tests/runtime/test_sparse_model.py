"""The runtime against PyTorch: every operation, layout, instruction set and number of threads."""

import multiprocessing
import threading
import warnings
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from hypersparse import models
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, GraphError, Node, SlowWarning, SparseModel, dense_engines, kernel_library
from hypersparse_runtime.compile_kernel import KernelError
from hypersparse_runtime.dense_engines import DENSE_ENGINES, DenseEngine
from hypersparse_runtime.engine_selection import Engine
from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.sparse_engine import measured
from hypersparse_runtime.sparse_model import MOST_DENSE
from tests.export.networks import Expm1
from tests.runtime.networks import computed, graphs, largest, sparse_

LEVELS = load_kernel().levels


def expected(model: nn.Module, images: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return model.double()(images.double()).numpy()


def assert_close(found: np.ndarray, wanted: np.ndarray, largest: float = 1e-3) -> None:
    assert found.shape == wanted.shape
    scale = max(np.abs(wanted).max(), largest)
    assert np.abs(found - wanted).max() <= 1e-5 * scale


def images_for(graph: Graph, count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *graph.input_shape)).astype(np.float32)


@pytest.mark.slow
@given(graphs())
@settings(max_examples=50)
def test_any_network_gives_what_pytorch_gives(graph: Graph) -> None:
    images = images_for(graph, 11)
    wanted, most = computed(graph, images), largest(graph, images)
    for level in LEVELS:
        runtime = SparseModel(graph, engine="hypersparse", threads=1, instructions=level)
        assert_close(runtime(images[:1]), wanted[:1], most)
        assert_close(runtime(images), wanted, most)
    assert_close(SparseModel(graph, engine="numpy")(images), wanted, most)


@given(graphs())
@settings(max_examples=15)
def test_layouts_and_threads_give_the_same_bits(graph: Graph) -> None:
    images = images_for(graph, 37)
    one, two = (SparseModel(graph, engine="hypersparse", threads=threads) for threads in (1, 2))
    single = np.concatenate([one(images[n : n + 1]) for n in range(len(images))])
    np.testing.assert_array_equal(one(images), single)
    np.testing.assert_array_equal(two(images), single)
    run_concurrently = one._engine._side_by_side()  # type: ignore[attr-defined]
    many = np.empty_like(single)
    run_concurrently.run(images.ctypes.data, many.ctypes.data, len(images))
    np.testing.assert_array_equal(many, single)


def test_code_that_rounds_otherwise_is_taken_only_where_there_is_no_other() -> None:
    graph = trace(nn.Linear(8, 4), (8,))
    chosen = SparseModel(graph, engine="hypersparse")._engine._levels  # type: ignore[attr-defined]
    assert chosen == (LEVELS[1:] or LEVELS)
    assert SparseModel(graph, engine="hypersparse", instructions=LEVELS[0])._engine._levels == LEVELS[:1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["resnet8", "vgg11"])
def test_the_packages_networks(name: str) -> None:
    model = sparse_(models.build(name, shape=(3, 32, 32), classes=10, options={"width": 16}), 0.95)
    images = torch.randn(20, 3, 32, 32)
    graph = trace(model, (3, 32, 32))
    wanted = expected(model, images)
    for level in LEVELS:
        runtime = SparseModel(graph, engine="hypersparse", instructions=level)
        assert_close(runtime(images.numpy()), wanted)
        assert_close(runtime(images[3:4].numpy()), wanted[3:4])


def test_wide_images_and_far_taps() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=20, dilation=20), nn.ReLU(), nn.Conv2d(4, 2, (1, 7), padding=3))
    for width in (5, 60, 300):
        graph, images = trace(model, (2, 41, width)), torch.randn(2, 2, 41, width)
        for level in LEVELS:
            runtime = SparseModel(graph, engine="hypersparse", instructions=level)
            assert_close(runtime(images.numpy()), expected(model, images))
        model.float()


def test_planes_are_added_where_they_belong() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 2, 3, 3)).astype(np.float32)
    plane = rng.normal(size=(3, 5, 6)).astype(np.float32)
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    nodes = (
        Node("conv", ("input",), "a", {"weight": "w"}, options),
        Node("plane", ("a",), "b", {"value": "p"}),
        Node("relu", ("b",), "c"),
    )
    graph = Graph((2, 5, 6), nodes, {"w": weight, "p": plane})
    images = rng.normal(size=(20, 2, 5, 6)).astype(np.float32)
    convolved = torch.nn.functional.conv2d(torch.from_numpy(images), torch.from_numpy(weight), padding=1).numpy()
    model = SparseModel(graph, engine="hypersparse")
    assert_close(model(images), np.maximum(convolved + plane, 0))
    assert_close(model(images[:1]), np.maximum(convolved + plane, 0)[:1])


def test_nan_stays_nan_as_in_pytorch() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU())
    images = torch.full((1, 1, 4, 4), float("nan"))
    assert np.isnan(SparseModel(trace(model, (1, 4, 4)), engine="hypersparse")(images.numpy())).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("level", LEVELS)
def test_a_bias_that_is_no_number_is_seen_in_channels_without_weights(level: str, value: float) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    with torch.no_grad():
        model[0].weight[1] = 0
        model[0].bias[1] = value
        model[3].weight[0, 16:32] = 0.5
        model[3].weight[1] = 1.0
        wanted = model(torch.ones(1, 1, 4, 4)).numpy()
    assert not np.isfinite(wanted).any()
    found = SparseModel(trace(model, (1, 4, 4)), engine="hypersparse", instructions=level)
    np.testing.assert_array_equal(found(np.ones((1, 1, 4, 4), np.float32)), wanted)


def small() -> nn.Module:
    return sparse_(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4)), 0.9)


def test_many_threads_may_call_one_model() -> None:
    model = SparseModel(trace(small(), (3, 8, 8)), engine="hypersparse", threads=2)
    images = np.random.default_rng(0).normal(size=(8, 5, 3, 8, 8)).astype(np.float32)
    wanted = [model(each) for each in images]
    found: list[np.ndarray | None] = [None] * 8

    def work(number: int) -> None:
        for _ in range(20):
            found[number] = model(images[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(np.stack([each for each in found if each is not None]), np.stack(wanted))


def test_out_is_filled_and_workspaces_are_kept() -> None:
    model = SparseModel(trace(small(), (3, 8, 8)), engine="hypersparse", threads=1)
    images = np.ones((1, 3, 8, 8), dtype=np.float32)
    out = np.empty((1, 4), dtype=np.float32)
    assert model(images, out=out) is out
    spaces = list(model._engine._one._spaces)  # type: ignore[attr-defined]
    for _ in range(5):
        model(images, out=out)
    kept = model._engine._one._spaces  # type: ignore[attr-defined]
    assert len(kept) == 1
    assert kept[0] is spaces[0]
    assert model(images[:0]).shape == (0, 4)


def test_other_arrays_are_converted_and_wrong_ones_said() -> None:
    model = SparseModel(trace(small(), (3, 8, 8)), engine="hypersparse")
    images = np.ones((2, 3, 8, 8))
    np.testing.assert_array_equal(model(images), model(images.astype(np.float32)))
    np.testing.assert_array_equal(model(images[::-1]), model(images))
    with pytest.raises(ValueError, match=r"\(number, 3, 8, 8\); got \(3, 8, 8\)"):
        model(images[0])
    with pytest.raises(ValueError, match=r"float32 array of the shape \(2, 4\)"):
        model(images, out=np.empty((2, 4)))
    with pytest.raises(ValueError, match="`engine` is one of"):
        SparseModel(model.graph, engine="gpu")
    with pytest.raises(ValueError, match="instruction sets are"):
        SparseModel(model.graph, instructions="avx9")
    with pytest.raises(ValueError, match="count of 1 or more"):
        SparseModel(model.graph, threads=0)


@pytest.mark.parametrize("slopes", [1, 6])
@pytest.mark.parametrize("shape", [(3, 8, 8), (6,)])
def test_prelu_is_computed_with_one_slope_and_with_one_for_each_channel(slopes: int, shape: tuple[int, ...]) -> None:
    layer = nn.Conv2d(3, 6, 3) if len(shape) == 3 else nn.Linear(6, 6)
    model = nn.Sequential(layer, nn.PReLU(slopes)).eval()
    with torch.no_grad():
        model[1].weight.copy_(torch.linspace(-0.5, 2.0, slopes + 1)[1:])
        inputs = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
        wanted = model(inputs).numpy()
    graph = trace(model, shape)
    for engine in ("hypersparse", "numpy"):
        found = SparseModel(graph, engine=engine)(inputs.numpy())
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


def test_operations_of_pytorch_alone_are_refused() -> None:
    graph = trace(nn.Sequential(nn.Conv2d(1, 2, 1), nn.GELU(), Expm1()), (1, 4, 4))
    for engine in ("auto", "numpy"):
        with pytest.raises(GraphError, match=r"aten\.expm1"):
            SparseModel(graph, engine=engine)


def test_a_network_of_many_operations_is_prepared_for_no_dense_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO took 12 s of 3,000 operations in a file of 9 kB."""
    monkeypatch.setattr(
        "hypersparse_runtime.sparse_model.installed_engines", lambda: pytest.fail("a dense engine was asked for")
    )
    names = [INPUT, *(f"v{number}" for number in range(MOST_DENSE + 1))]
    nodes = tuple(Node("linear", (x,), y, {"weight": "w"}) for x, y in pairwise(names))
    assert SparseModel(Graph((1,), nodes, {"w": np.ones((1, 1), np.float32)})).engine == "hypersparse"


def test_without_a_compiler_numpy_runs_it_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    graph, images = trace(model, (3, 8, 8)), torch.randn(3, 3, 8, 8)

    def missing() -> None:
        raise KernelError("No C compiler was found to build the kernel with; looked for cc.")

    monkeypatch.setattr("hypersparse_runtime.sparse_model.load_kernel", missing)
    monkeypatch.setattr("hypersparse_runtime.sparse_model.installed_engines", list)
    with pytest.warns(SlowWarning, match=r"No C compiler was found .* runs in numpy, which is slow"):
        runtime = SparseModel(graph)
    assert runtime.engine == "numpy"
    assert_close(runtime(images.numpy()), expected(model, images))
    with pytest.raises(KernelError):
        SparseModel(graph, engine="hypersparse")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("hypersparse_runtime.sparse_model.installed_engines", lambda: [dense_engines.OnnxRuntimeEngine])
    with pytest.warns(SlowWarning, match=r"No C compiler was found .* runs dense, in ONNX Runtime"):
        assert SparseModel(graph).engine == "onnxruntime"


def dense_model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4))


@pytest.mark.parametrize("engine", DENSE_ENGINES)
def test_dense_networks_are_handed_over(engine: DenseEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(engine.name)
    monkeypatch.setattr("hypersparse_runtime.sparse_model.installed_engines", lambda: [engine])
    model = dense_model()
    runtime, images = SparseModel(trace(model, (3, 8, 8))), torch.randn(3, 3, 8, 8)
    assert runtime.engine == runtime.engine_for(64) == engine.name
    assert_close(runtime(images.numpy()), expected(model, images))


def test_of_two_dense_engines_the_faster_one_runs_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in DENSE_ENGINES:
        pytest.importorskip(engine.name)
    fixed_times(monkeypatch, {1: {"onnxruntime": 1, "openvino": 2}, 32: {"onnxruntime": 2, "openvino": 1}})
    model = dense_model()
    runtime, images = SparseModel(trace(model, (3, 8, 8)), threads=1), torch.randn(65, 3, 8, 8)
    assert [runtime.engine_for(count) for count in (1, 32, 64, 1000)] == ["onnxruntime", *["openvino"] * 3]
    assert_close(runtime(images[:1].numpy()), expected(model, images[:1]))
    assert_close(runtime(images.numpy()), expected(model, images))
    with pytest.raises(ValueError, match="count of 1 or more; got 0"):
        runtime.engine_for(0)


@pytest.mark.parametrize(
    ("single", "batch", "engines"),
    [
        ({"hypersparse": 1, "onnxruntime": 0.9, "openvino": 1}, {"hypersparse": 1, "onnxruntime": 2, "openvino": 0.9},
         ("onnxruntime", "openvino")),
        ({"hypersparse": 1, "onnxruntime": 1.9, "openvino": 1.8}, {"hypersparse": 1, "onnxruntime": 0.9, "openvino": 1},
         ("hypersparse", "onnxruntime")),
        ({"hypersparse": 1, "onnxruntime": 2.1}, {}, ("hypersparse", "hypersparse")),
    ],
)  # fmt: skip
def test_in_between_the_fastest_for_a_number_of_images_runs_them(
    single: dict[str, float], batch: dict[str, float], engines: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine in DENSE_ENGINES:
        pytest.importorskip(engine.name)
    fixed_times(monkeypatch, {1: single, 32: batch})
    model = SparseModel(trace(sparse_(nn.Conv2d(3, 8, 3), 0.75), (3, 8, 8)), threads=1)
    assert (model.engine, model.engine_for(64)) == engines


def fixed_times(monkeypatch: pytest.MonkeyPatch, seconds: dict[int, dict[str, float]]) -> None:
    """What trials find, by the number of images; an engine without a time must not be tried."""

    def found(engines: list[Engine], images: int, *_shapes: object, threads: int) -> list[float]:
        return [seconds[images][engine.name] for engine in engines]

    monkeypatch.setattr("hypersparse_runtime.engine_selection.trial", found)
    monkeypatch.setattr("hypersparse_runtime.sparse_model.trial", found)


def test_without_dense_engines_dense_networks_run_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypersparse_runtime.sparse_model.installed_engines", list)
    graph = trace(sparse_(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), 0.0), (3, 8, 8))
    with pytest.warns(SlowWarning, match="100% of a dense one's products.*onnxruntime or openvino"):
        assert SparseModel(graph).engine == "hypersparse"
    for engine in DENSE_ENGINES:
        with pytest.raises(ValueError, match=f"not installed here: pip install {engine.name}"):
            SparseModel(graph, engine=engine.name)


def test_sparse_networks_do_not() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SparseModel(trace(sparse_(models.build("resnet8", shape=(3, 32, 32), classes=10), 0.98), (3, 32, 32)))
    assert model.engine == "hypersparse"
    assert model.products < 0.05 * model.dense_products
    assert not hasattr(dense_engines, "torch")
    assert not hasattr(kernel_library, "torch")


@pytest.mark.slow
def test_a_forked_process_has_threads_of_its_own() -> None:
    weight = np.eye(3, dtype=np.float32)
    model = SparseModel(Graph((3,), (Node("linear", ("input",), "y", {"weight": "w"}),), {"w": weight}), threads=2)
    images = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert_close(model(images), images)  # the parent's threads are there now
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about forks of processes with threads
        child = multiprocessing.get_context("fork").Process(target=model, args=(images,))
        child.start()
    child.join(20)
    alive = child.is_alive()
    child.kill()
    child.join()
    assert not alive
    assert child.exitcode == 0


def test_lists_are_images_too_and_other_things_get_a_sentence() -> None:
    model = SparseModel(Graph((2,), (Node("relu", ("input",), "y"),), {}), engine="hypersparse")
    assert model([[1, -1]]).tolist() == [[1.0, 0.0]]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="arrays of numbers, best of float32; got object"):
        model(None)  # type: ignore[arg-type]


def test_programs_are_timed_in_turns_on_equally_many_images() -> None:
    calls = []

    class Fake:
        def __init__(self, name: str, lanes: int, seconds: list[float]) -> None:
            self.name, self.seconds = name, iter(seconds)
            self.program = SimpleNamespace(lanes=lanes, operations=1)

        def timed(self, blocks: int) -> float:
            calls.append((self.name, blocks * self.program.lanes))
            return next(self.seconds)

    one, many = Fake("one", 1, [3.0, 1.0, 2.0]), Fake("many", 16, [5.0, 9.0, 7.0])
    assert measured(one, many) == [1.0, 5.0]  # type: ignore[arg-type]
    assert calls == [("one", 16), ("many", 16)] * 3


def test_pixels_and_what_is_no_number_are_refused_where_images_are_normalised() -> None:
    graph = Graph((2,), (Node("linear", ("input",), "y", {"weight": "w"}),), {"w": np.eye(2, dtype=np.float32)})
    pixels = np.array([[1, 2]], dtype=np.uint8)
    assert SparseModel(graph)(pixels).tolist() == [[1.0, 2.0]]
    for wrong in (pixels.astype(complex), np.array([["a", "b"]]), None):
        with pytest.raises(ValueError, match="arrays of numbers"):
            SparseModel(graph)(wrong)  # type: ignore[arg-type]
    normalised = replace(graph, about={"normalisation": {"scale": 255, "mean": [0.5], "std": [0.5]}})
    with pytest.raises(ValueError, match=r"takes normalised images.*got uint8"):
        SparseModel(normalised)(pixels)
    assert SparseModel(normalised)(pixels.astype(np.float64)).tolist() == [[1.0, 2.0]]

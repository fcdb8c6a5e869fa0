"""Engines of other packages: what they are asked for, and that nothing is loaded or sent unasked."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from hypersparse_runtime import Graph, Node
from hypersparse_runtime.dense_engines import (
    DENSE_ENGINES,
    DenseEngine,
    OpenVinoEngine,
    installed_engines,
    is_installed,
)
from hypersparse_runtime.graph import INPUT
from tests.runtime.networks import computed, graphs, largest
from tests.runtime.test_sparse_model import assert_close, images_for


@pytest.fixture(params=DENSE_ENGINES, scope="module")
def engine(request: pytest.FixtureRequest) -> DenseEngine:
    pytest.importorskip(request.param.name)
    made: DenseEngine = request.param
    return made


def outputs_of(engine: DenseEngine, graph: Graph, images: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    found = np.full(wanted.shape, np.nan, dtype=np.float32)
    engine(graph, threads=1).run(images, found)
    return found


@given(graphs())
@settings(max_examples=8)
def test_any_network_gives_what_pytorch_gives(engine: DenseEngine, graph: Graph) -> None:
    images = images_for(graph, 5)
    wanted, most = computed(graph, images), largest(graph, images)
    images.flags.writeable = False
    assert_close(outputs_of(engine, graph, images, wanted), wanted, most)
    assert_close(outputs_of(engine, graph, images[:1], wanted[:1]), wanted[:1], most)


def test_many_threads_may_call_one_engine(engine: DenseEngine) -> None:
    graph = convolution()
    made, images = engine(graph, threads=2), np.random.default_rng(0).normal(size=(8, 5, 3, 16, 16)).astype(np.float32)

    def run(batch: np.ndarray) -> np.ndarray:
        outputs = np.empty((len(batch), 8, 16, 16), dtype=np.float32)
        made.run(batch, outputs)
        return outputs

    wanted = [run(batch) for batch in images]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            np.testing.assert_array_equal(list(pool.map(run, images)), wanted)


def test_openvino_computes_in_float32_with_the_threads_it_is_given() -> None:
    pytest.importorskip("openvino")
    for threads in (1, 2):
        model = OpenVinoEngine(convolution(), threads=threads)._model
        assert model.get_property("INFERENCE_NUM_THREADS") == threads
        assert model.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
        assert model.get_property("ENABLE_CPU_PINNING") is False


def test_a_folder_of_the_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_clone").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("a_clone")
    (tmp_path / "a_clone" / "__init__.py").touch()
    assert is_installed("a_clone")
    monkeypatch.setattr("hypersparse_runtime.dense_engines.is_installed", lambda package: package == "openvino")
    assert installed_engines() == [OpenVinoEngine]


NETWORK = """
import os, signal, sys, threading
import numpy as np
from hypersparse_runtime import Graph, Node, SparseModel

def network(kept):
    weight = np.ones((16, 3, 3, 3), np.float32)
    weight.ravel()[kept:] = 0
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    return Graph((3, 8, 8), (Node("conv", ("input",), "y", {"weight": "w"}, options),), {"w": weight})
"""

WATCHED = """
assert SparseModel(network(9), threads=1).engine == "hypersparse"
loaded = {"openvino", "onnxruntime", "torch"} & set(sys.modules)
assert not loaded, loaded

seen = []
def watch(event, details):
    starts = event in ("os.fork", "os.posix_spawn", "subprocess.Popen", "os.mkdir") or event.startswith("socket.")
    writes = event == "open" and isinstance(details[1], str) and set(details[1]) & set("wax+")
    if starts or writes:
        seen.append((event, details))

os.environ["HOME"] = sys.argv[1]
sys.addaudithook(watch)
cores = os.sched_getaffinity(0)
model = SparseModel(network(432), threads=1, engine="openvino")
outputs = model(np.ones((1, 3, 8, 8), np.float32))
assert outputs[0, 0, 4, 4] == 27, outputs
assert not seen, seen
assert threading.active_count() == 1, threading.enumerate()
assert os.sched_getaffinity(0) == cores
assert "openvino_telemetry" not in sys.modules
"""


@pytest.mark.slow
def test_nothing_is_loaded_before_it_is_needed_and_nothing_is_sent(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    told_to_be_quiet = ("CI", "TF_BUILD", "JENKINS_URL")  # by OpenVINO's own rules
    environment = {key: value for key, value in os.environ.items() if key not in told_to_be_quiet}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", NETWORK + WATCHED, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


SIGNALLED = """
models = [SparseModel(network(432), threads=1, engine="openvino")]
dropping = threading.Thread(target=models.clear)
dropping.start()
dropping.join()
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(True))
os.kill(os.getpid(), signal.SIGUSR1)
assert heard
"""


@pytest.mark.slow
def test_signals_reach_a_process_whose_network_another_thread_dropped() -> None:
    pytest.importorskip("openvino")
    done = subprocess.run([sys.executable, "-c", NETWORK + SIGNALLED], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


def convolution() -> Graph:
    weight = np.random.default_rng(1).normal(size=(8, 3, 3, 3)).astype(np.float32)
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    return Graph((3, 16, 16), (Node("conv", ("input",), "y", {"weight": "w"}, options),), {"w": weight})


def test_threads_of_an_idle_engine_do_not_occupy_cores(engine: DenseEngine) -> None:
    weight = np.random.default_rng(0).normal(size=(256, 256, 3, 3)).astype(np.float32)
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    graph = Graph((256, 16, 16), (Node("conv", (INPUT,), "y", {"weight": "w"}, options),), {"w": weight})
    built, spent = engine(graph, threads=2), list[float]()
    images, outputs = np.ones((1, 256, 16, 16), dtype=np.float32), np.empty((1, 256, 16, 16), dtype=np.float32)
    for _ in range(10):
        built.run(images, outputs)
        began = time.process_time()
        time.sleep(0.05)
        spent.append(time.process_time() - began)
    assert np.median(spent) < 0.01  # ONNX Runtime with its defaults takes 0.04 s

"""Dense engines: ONNX Runtime and OpenVINO if installed, and plain numpy, which always runs and is slow."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import Any

from hypersparse_runtime.graph import INPUT, Graph
from hypersparse_runtime.onnx import to_onnx
from hypersparse_runtime.sparse_layers import Array

_CORES: list[Any] = []
_ONE_CORE = Lock()


def is_installed(package: str) -> bool:
    """Whether a package can be imported. A folder of the same name, such as a clone of its source, does not count."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def openvino_core() -> Any:
    """OpenVINO's compiler: one for the whole process, which is never released.

    Its CPU plugin gives the thread that first uses it another signal stack, and unmaps that stack when its last user is
    released. If another thread releases it, the first thread has no signal stack and the process dies on a signal.
    """
    with _ONE_CORE:
        if not _CORES:
            with _missing("openvino_telemetry"):  # else every import is reported to its makers
                import openvino
            _CORES.append(openvino.Core())
        return _CORES[0]


@contextmanager
def _missing(package: str) -> Iterator[None]:
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # as the import system says that there is none
    try:
        yield
    finally:
        del sys.modules[package]


class OnnxRuntimeEngine:
    """ONNX Runtime on the CPU."""

    name, title = "onnxruntime", "ONNX Runtime"

    def __init__(self, graph: Graph, *, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        # Else its threads wait busily for up to 0.1 s after each call, on cores that others need.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self._session = onnxruntime.InferenceSession(to_onnx(graph), options, providers=["CPUExecutionProvider"])

    def run(self, images: Array, outputs: Array) -> None:
        """Run a dense float32 batch."""
        outputs[...] = self._session.run(None, {INPUT: images})[0]


class OpenVinoEngine:
    """OpenVINO on the CPU, in float32."""

    name, title = "openvino", "OpenVINO"

    def __init__(self, graph: Graph, *, threads: int) -> None:
        core = openvino_core()
        hints = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "ENABLE_CPU_PINNING": False,  # else one thread is bound to the first core, in every process to the same
        }
        self._model = core.compile_model(core.read_model(to_onnx(graph), b""), "CPU", hints)
        self._requests: list[Any] = []  # pop and append are atomic: each call has one to itself

    def run(self, images: Array, outputs: Array) -> None:
        """Run a dense float32 batch."""
        try:
            request = self._requests.pop()
        except IndexError:
            request = self._model.create_infer_request()
        outputs[...] = request.infer(images, share_inputs=True, share_outputs=True)[0]
        self._requests.append(request)


DenseEngine = type[OnnxRuntimeEngine] | type[OpenVinoEngine]
DENSE_ENGINES: tuple[DenseEngine, ...] = (OnnxRuntimeEngine, OpenVinoEngine)


def installed_engines() -> list[DenseEngine]:
    """The installed engines of other packages; nothing is imported yet."""
    return [engine for engine in DENSE_ENGINES if is_installed(engine.name)]


class NumpyEngine:
    """Every operation in numpy, one after another."""

    name = "numpy"

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def run(self, images: Array, outputs: Array) -> None:
        """Run a dense float32 batch."""
        values = {INPUT: images}
        for node in self._graph.nodes:
            values[node.output] = node.operation.compute(self._graph, node, *(values[name] for name in node.inputs))
        outputs[...] = values[self._graph.output]

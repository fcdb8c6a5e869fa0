"""Inference engines on the CPU, each as a function from images to outputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.networks import BenchmarkNetwork
from hypersparse.errors import OptionError, unknown
from hypersparse_runtime import SparseModel
from hypersparse_runtime.dense_engines import is_installed, openvino_core
from hypersparse_runtime.file import pack
from hypersparse_runtime.graph import Graph
from hypersparse_runtime.lowering import dense_products
from hypersparse_runtime.onnx import to_onnx

OURS, SHRUNK = "hypersparse", "onnxruntime-shrunk"
DENSE = ("onnxruntime", "openvino")  # the better of the two is the baseline of speed-ups
MASKLESS = ("torch", "torch.compile", *DENSE)  # they take as long with any mask
ENGINES = (*MASKLESS, SHRUNK, OURS)

Predict = Callable[[NDArray[np.float32]], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class InferenceEngine:
    """An engine with a network loaded."""

    engine: str
    predict: Predict
    file_bytes: int
    products: int  # multiplications per image
    note: str = ""


def installed(engine: str) -> bool:
    """Whether the package that an engine needs is installed."""
    package = engine.removesuffix("-shrunk")
    return package not in DENSE or is_installed(package)


def check_engines(engines: list[str]) -> None:
    """Raise an error for unknown engines and those that are not installed."""
    for engine in engines:
        if engine not in ENGINES:
            raise OptionError(unknown("engine", engine, ENGINES))
        if not installed(engine):
            raise OptionError(f"{engine} is not installed; install it with pip install 'hypersparse[engines]'.")


def build_engine(engine: str, network: BenchmarkNetwork, *, batch: int, threads: int) -> InferenceEngine:
    """Load a network into an engine, for batches of this size."""
    if engine.startswith("torch"):
        return _torch(engine, network)
    if engine == OURS:
        return _ours(network, batch, threads)
    graph = network.shrunk if engine == SHRUNK else network.graph
    content = to_onnx(graph)
    run = _openvino(content, threads) if engine == "openvino" else _onnxruntime(content, threads)
    return InferenceEngine(engine, run, len(content), dense_products(graph))


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Set the number of PyTorch's threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _torch(engine: str, network: BenchmarkNetwork) -> InferenceEngine:
    module: Any = network.module.eval()
    if engine == "torch.compile":
        module = torch.compile(module)

    def run(images: NDArray[np.float32]) -> NDArray[Any]:
        with torch.inference_mode():
            inputs = torch.from_numpy(images)
            outputs: NDArray[Any] = module(inputs.long() if network.tokens else inputs).numpy()
        return outputs

    size = sum(tensor.numel() * tensor.element_size() for tensor in network.module.state_dict().values())
    return InferenceEngine(engine, run, size, network.dense_products)


def _ours(network: BenchmarkNetwork, batch: int, threads: int) -> InferenceEngine:
    model = SparseModel(network.graph, threads=threads)
    out: dict[int, NDArray[np.float32]] = {}

    def run(images: NDArray[np.float32]) -> NDArray[Any]:
        out[len(images)] = model(images, out=out.get(len(images)))
        return out[len(images)]

    size = len(pack(Graph(network.graph.input_shape, network.graph.nodes, network.graph.tensors)))
    engine = model.engine_for(batch)
    note = "" if engine == OURS else f"delegated to {engine}"
    return InferenceEngine(OURS, run, size, model.products if not note else model.dense_products, note)


def _onnxruntime(content: bytes, threads: int) -> Predict:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    # Its threads wait busily inside a call only. Without any busy waiting two threads take 1.26 times as long.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"input": images})[0]


def _openvino(content: bytes, threads: int) -> Predict:
    core = openvino_core()
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    hints |= {"NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}
    model = core.compile_model(core.read_model(content, b""), "CPU", hints)
    return lambda images: model(images)[0]

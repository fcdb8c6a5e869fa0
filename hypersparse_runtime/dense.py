"""Dense engines: ONNX Runtime and OpenVINO where installed, and plain numpy, which runs anywhere and is slow."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hypersparse_runtime.graph import INPUT, SHARES, Graph, GraphError, Node, bounds, pair
from hypersparse_runtime.ir import Array
from hypersparse_runtime.onnx import to_onnx

_CORES: list[Any] = []
_ONE_CORE = Lock()


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a folder of its name, such as a clone of its source, is not one."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def openvino_core() -> Any:
    """What OpenVINO compiles networks with: one for the whole process, which is never given back.

    Its CPU plugin gives the thread that first uses it another stack for signals, and unmaps that stack when its last
    user is gone. If another thread does that, the first one's stack is no more, and the process dies of a signal.
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
        self._session = onnxruntime.InferenceSession(to_onnx(graph), options, providers=["CPUExecutionProvider"])

    def run(self, images: Array, outputs: Array) -> None:
        """From a dense batch of float32 to a dense batch of float32."""
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
        """From a dense batch of float32 to a dense batch of float32."""
        try:
            request = self._requests.pop()
        except IndexError:
            request = self._model.create_infer_request()
        outputs[...] = request.infer(images, share_inputs=True, share_outputs=True)[0]
        self._requests.append(request)


HandOver = type[OnnxRuntimeEngine] | type[OpenVinoEngine]
HAND_OVERS: tuple[HandOver, ...] = (OnnxRuntimeEngine, OpenVinoEngine)


def hand_overs() -> list[HandOver]:
    """The engines of other packages that are installed; nothing is imported yet."""
    return [engine for engine in HAND_OVERS if is_installed(engine.name)]


class NumpyEngine:
    """Every operation in numpy, as its definition says."""

    name = "numpy"

    def __init__(self, graph: Graph) -> None:
        for node in graph.nodes:
            if node.opaque:
                raise GraphError(
                    f"The runtime has no operation `{node.op}` (`{node.output}`); only PyTorch can run it."
                )
        self._graph = graph

    def run(self, images: Array, outputs: Array) -> None:
        """From a dense batch of float32 to a dense batch of float32."""
        values = {INPUT: images}
        for node in self._graph.nodes:
            inputs = [values[name] for name in node.inputs]
            values[node.output] = _RULES[node.op](self._graph, node, *inputs)
        outputs[...] = values[self._graph.output]


def _conv(graph: Graph, node: Node, x: Array) -> Array:
    weight, bias = _given(graph, node, "weight"), graph.array(node, "bias")
    groups, dilation = int(node.options["groups"]), pair(node, "dilation", least=1)
    kernel = tuple((side - 1) * step + 1 for side, step in zip(weight.shape[2:], dilation, strict=True))
    windows = _windows(x, kernel, node, fill=0.0)[..., :: dilation[0], :: dilation[1]]
    rows, columns = len(weight) // groups, weight.shape[1]
    parts = [
        np.einsum("nchwyx,ocyx->nohw", windows[:, g * columns : (g + 1) * columns], weight[g * rows : (g + 1) * rows],
                  optimize=True)
        for g in range(groups)
    ]  # fmt: skip
    result: Array = np.concatenate(parts, axis=1)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _linear(graph: Graph, node: Node, x: Array) -> Array:
    bias = graph.array(node, "bias")
    result: Array = x @ _given(graph, node, "weight").T
    return result if bias is None else result + bias


def _batch_norm(graph: Graph, node: Node, x: Array) -> Array:
    weight, bias, mean, variance = (_given(graph, node, role) for role in ("weight", "bias", "mean", "variance"))
    scale = weight / np.sqrt(variance + np.float32(node.options["epsilon"]))
    shape = (-1, *[1] * (x.ndim - 2))
    result: Array = x * scale.reshape(shape) + (bias - mean * scale).reshape(shape)
    return result


def _relu(_graph: Graph, _node: Node, x: Array) -> Array:
    return np.maximum(x, 0)


def _clip(_graph: Graph, node: Node, x: Array) -> Array:
    low, high = (np.float32(bound) for bound in bounds(node))
    result: Array = np.clip(x, low, high)
    return result


def _add(_graph: Graph, _node: Node, x: Array, y: Array) -> Array:
    result: Array = x + y
    return result


def _concat(_graph: Graph, _node: Node, *parts: Array) -> Array:
    return np.concatenate(parts, axis=1)


def _plane(graph: Graph, node: Node, x: Array) -> Array:
    result: Array = x + _given(graph, node, "value")
    return result


def _max_pool(_graph: Graph, node: Node, x: Array) -> Array:
    result: Array = _windows(x, pair(node, "kernel", least=1), node, fill=-np.inf).max(axis=(4, 5))
    return result


def _avg_pool(_graph: Graph, node: Node, x: Array) -> Array:
    result: Array = _windows(x, pair(node, "kernel", least=1), node, fill=0.0).mean(axis=(4, 5))
    return result


def _mean(_graph: Graph, _node: Node, x: Array) -> Array:
    result: Array = x.mean(axis=(2, 3))
    return result


def _softmax(_graph: Graph, node: Node, x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, as in PyTorch
        less = x - x.max(axis=1, keepdims=True)
    powers = np.exp(less)
    sums = powers.sum(axis=1, keepdims=True)
    result: Array = less - np.log(sums) if node.op == "log_softmax" else powers / sums
    return result


def _flatten(_graph: Graph, _node: Node, x: Array) -> Array:
    return x.reshape(len(x), -1)


_RULES: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "conv": _conv,
        "linear": _linear,
        "batch_norm": _batch_norm,
        "relu": _relu,
        "clip": _clip,
        "add": _add,
        "concat": _concat,
        "plane": _plane,
        "max_pool": _max_pool,
        "avg_pool": _avg_pool,
        "mean": _mean,
        "flatten": _flatten,
        **dict.fromkeys(SHARES, _softmax),
    }
)


def _windows(x: Array, kernel: tuple[int, ...], node: Node, *, fill: float) -> Array:
    """Of every output position: (images, channels, height, width, kernel height, kernel width)."""
    (top, left), stride = pair(node, "padding", least=0), pair(node, "stride", least=1)
    padded = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=fill)
    windows: Array = sliding_window_view(padded, kernel, axis=(2, 3))
    return windows[:, :, :: stride[0], :: stride[1]]


def _given(graph: Graph, node: Node, role: str) -> Any:
    array = graph.array(node, role)
    assert array is not None  # shapes() has looked
    return array.astype(np.float32, copy=False)

"""Every operation of a graph, in everything that runs, writes, traces or shrinks a network: a row for each."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hypersparse.errors import ModelError
from hypersparse.export.c_source import save_c
from hypersparse.export.graph_module import to_module
from hypersparse.export.onnx import in_onnx_runtime
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, GraphError, Node, SparseModel
from hypersparse_runtime.file import pack, unpack
from hypersparse_runtime.functions import FUNCTIONS, OPERATORS, REDUCTIONS
from hypersparse_runtime.graph import INPUT, shapes
from hypersparse_runtime.limits import estimate
from hypersparse_runtime.onnx import to_onnx
from hypersparse_runtime.operations import OPERATIONS

IMAGE, VECTOR = (4, 6, 5), (7,)
CONSUMERS = ("numpy", "kernel", "torch", "onnx", "c", "file", "trace", "shrink")


@dataclass(frozen=True)
class Row:
    """A network of one operation, or with a sum before it, and who refuses it."""

    op: str
    shape: tuple[int, ...] = IMAGE
    inputs: int = 1
    arrays: dict[str, tuple[int, ...]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    ids: int = 0  # inputs are whole numbers below it
    positive: bool = False  # inputs are

    def images(self) -> np.ndarray:
        rng = np.random.default_rng(1)
        if self.ids:
            return rng.integers(0, self.ids, size=(3, *self.shape)).astype(np.float32)
        given = rng.normal(size=(3, *self.shape)).astype(np.float32)
        return np.abs(given) + np.float32(0.1) if self.positive else given

    def graph(self) -> Graph:
        rng = np.random.default_rng(0)
        arrays = {f"layer.{role}": rng.random(shape).astype(np.float32) + 0.5 for role, shape in self.arrays.items()}
        for array in arrays.values():
            array[1 % len(array)] = 0  # something that `shrink` removes
        names = {role: f"layer.{role}" for role in self.arrays}
        return Graph(self.shape, (Node(self.op, (INPUT,) * self.inputs, "v1", names, self.options),), arrays)


SLIDE = {"stride": (2, 1), "padding": (1, 0)}
STATISTICS = {role: (4,) for role in ("weight", "bias", "mean", "variance")}
CONV = {**SLIDE, "dilation": (1, 2), "groups": 1}
TOKENS = (9, 4)
PARAMETERS = {"leaky_relu": 0.1, "elu": 0.5, "celu": 0.5}
FUNCTION_OPTIONS = [
    {"function": name, **({"parameter": PARAMETERS[name]} if name in PARAMETERS else {})} for name in FUNCTIONS
]
CONV_TRANSPOSE = {"stride": (3, 2), "padding": (1, 0), "output_padding": (1, 1), "dilation": (1, 2), "groups": 1}
RESIZES = [
    {"mode": "nearest", "size": (12, 10), "scale": (2.0, 2.0), "align_corners": 0},
    {"mode": "nearest", "size": (4, 3), "scale": (4 / 6, 3 / 5), "align_corners": 0},
    {"mode": "bilinear", "size": (9, 7), "scale": (1.5, 1.4), "align_corners": 0},
    {"mode": "bilinear", "size": (3, 2), "scale": (0.5, 0.5), "align_corners": 0},
    {"mode": "bilinear", "size": (12, 10), "scale": (2.0, 2.0), "align_corners": 1},
]


def _recurrent(gates: int) -> dict[str, tuple[int, ...]]:
    sizes = {"weight_ih": (gates * 20, 4), "weight_hh": (gates * 20, 20)}
    return {**sizes, **dict.fromkeys(("bias_ih", "bias_hh"), (gates * 20,))}


ONLY_PYTORCH = ("numpy", "kernel", "onnx", "c")
ROWS = (
    Row("conv", arrays={"weight": (6, 4, 3, 2), "bias": (6,)}, options=CONV),
    Row("linear", VECTOR, arrays={"weight": (5, 7), "bias": (5,)}),
    Row("token_linear", TOKENS, arrays={"weight": (6, 4), "bias": (6,)}),
    Row("batch_norm", arrays=STATISTICS, options={"epsilon": 1e-5}),
    Row("relu"),
    Row("clip", options={"low": -0.5, "high": 0.25}),
    Row("softmax", VECTOR),
    Row("log_softmax", VECTOR),
    Row("add", inputs=2),
    Row("plane", arrays={"value": IMAGE}),
    Row("concat", inputs=2),
    Row("flatten"),
    Row("max_pool", options={"kernel": (3, 2), **SLIDE}),
    Row("avg_pool", options={"kernel": (3, 2), **SLIDE}),
    Row("mean"),
    *(
        Row("elementwise", options=options, positive=options["function"] in ("sqrt", "rsqrt", "log"))
        for options in FUNCTION_OPTIONS
    ),
    *(Row("arithmetic", inputs=2, options={"operator": name}, positive=True) for name in OPERATORS),
    Row("reshape", options={"shape": (2, 2, 30)}),
    Row("permute", options={"order": (2, 0, 1)}),
    Row("slice", options={"axis": 1, "start": 1, "length": 2, "step": 3}),
    Row("slice", options={"axis": 2, "start": 4, "length": 3, "step": -2}),
    Row("expand", (4, 1, 5), options={"shape": (4, 6, 5)}),
    Row("constant", arrays={"value": TOKENS}, unsupported=("trace",)),
    Row("embedding", (7,), arrays={"weight": (11, 6)}, ids=11),
    Row("layer_norm", TOKENS, arrays={"weight": (4,), "bias": (4,)}, options={"epsilon": 1e-5}),
    Row("group_norm", arrays={"weight": (4,), "bias": (4,)}, options={"groups": 2, "epsilon": 1e-5}),
    *(Row("reduce", TOKENS, options={"function": name}) for name in REDUCTIONS),
    Row("softmax_last", TOKENS),
    Row("matmul", (2, 5, 5), inputs=2, options={"scale": 0.5}),
    Row("conv_transpose", arrays={"weight": (4, 6, 3, 2), "bias": (6,)}, options=CONV_TRANSPOSE),
    *(Row("resize", options=options) for options in RESIZES),
    Row("adaptive_pool", options={"size": (4, 3)}),
    *(
        Row(op, TOKENS, arrays=_recurrent(gates), options={"reverse": way})
        for op, gates in (("lstm", 4), ("gru", 3))
        for way in (0, 1)
    ),
    Row(
        "aten.cos.default",
        options={"arguments": [{"input": 0}], "keywords": {}, "shape": IMAGE},
        unsupported=ONLY_PYTORCH,
    ),
)
Compute = Callable[[Graph, np.ndarray, Path], np.ndarray]


def test_every_operation_has_a_row_and_both_definitions() -> None:
    rows = list(dict.fromkeys(row.op for row in ROWS if "." not in row.op))
    assert rows == list(OPERATIONS) == list(TORCH_OPERATIONS)
    assert all(set(row.unsupported) <= set(CONSUMERS) for row in ROWS)
    for name, operation in OPERATIONS.items():
        assert operation.name == TORCH_OPERATIONS[name].name == name
        assert operation.onnx
        assert operation.passes
        assert operation.__doc__ != type(operation).__mro__[1].__doc__, f"say what {name} computes"


def row_name(row: Row) -> str:
    return "-".join([row.op, *(str(value) for value in row.options.values() if isinstance(value, str))])


def in_engine(name: str) -> Compute:
    return lambda graph, images, folder: SparseModel(graph, engine=name, threads=1)(images)


def in_torch(graph: Graph, images: np.ndarray, folder: Path) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = to_module(graph)(torch.from_numpy(images)).numpy()
    return found


def in_onnx(graph: Graph, images: np.ndarray, folder: Path) -> np.ndarray:
    content = to_onnx(graph)
    pytest.importorskip("onnxruntime")
    (folder / "a.onnx").write_bytes(content)
    return in_onnx_runtime(folder / "a.onnx")(torch.from_numpy(images)).numpy()


def in_c(graph: Graph, images: np.ndarray, folder: Path) -> np.ndarray:
    save_c(graph, folder / "a.c")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    command = ["gcc", "-std=c99", "-O1", "-shared", "-fPIC", "-o", "a.so", "a.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    predict = ctypes.CDLL(str(folder / "a.so")).a_predict
    found = np.zeros((len(images), *shapes(graph)[graph.output]), np.float32)
    for image, output in zip(images, found, strict=True):
        predict(image.ctypes.data_as(ctypes.c_void_p), output.ctypes.data_as(ctypes.c_void_p))
    return found


def in_file(graph: Graph, images: np.ndarray, folder: Path) -> np.ndarray:
    return in_torch(unpack(pack(graph)), images, folder)


def traced(graph: Graph, images: np.ndarray, folder: Path) -> np.ndarray:
    """PyTorch's calls become the operation again."""
    back = trace(to_module(graph), graph.input_shape)
    if not is_rewritten(graph.nodes[0]):
        assert [node.op for node in back.nodes] == [node.op for node in graph.nodes]
        assert all(dict(one.options) == dict(two.options) for one, two in zip(back.nodes, graph.nodes, strict=True))
    return in_torch(back, images, folder)


def is_rewritten(node: Node) -> bool:
    """Whether PyTorch computes the operation by calls that become others."""
    return (
        node.options.get("reverse") == 1
        or node.options.get("step", 1) < 0
        or node.op == "constant"
        or node.options.get("operator") == "add"
    )


def shrunk(graph: Graph, images: np.ndarray, folder: Path) -> np.ndarray:
    return in_torch(shrink_graph(graph).graph, images, folder)


COMPUTE: dict[str, Compute] = {
    "numpy": in_engine("numpy"),
    "kernel": in_engine("hypersparse"),
    "torch": in_torch,
    "onnx": in_onnx,
    "c": in_c,
    "file": in_file,
    "trace": traced,
    "shrink": shrunk,
}


FIRST = [row for place, row in enumerate(ROWS) if row.op not in [other.op for other in ROWS[:place]]]
CASES = [
    pytest.param(row, consumer, id=f"{row_name(row)}-{consumer}", marks=[pytest.mark.slow] * slow)
    for row in ROWS
    for consumer in CONSUMERS
    for slow in [consumer == "trace" and row not in FIRST]  # PyTorch's export takes 0.3 s for each
]


@pytest.mark.parametrize(("row", "consumer"), CASES)
def test_every_consumer_computes_it_or_refuses_it(row: Row, consumer: str, tmp_path: Path) -> None:
    graph = row.graph()
    images = row.images()
    if consumer in row.unsupported:
        with pytest.raises((GraphError, ModelError), match=row.op):
            COMPUTE[consumer](graph, images, tmp_path)
        return
    wanted = in_torch(graph, images, tmp_path)
    assert wanted.shape == (3, *shapes(graph)["v1"])
    assert np.abs(COMPUTE[consumer](graph, images, tmp_path) - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_every_operation_counts_its_work(row: Row) -> None:
    work = estimate(row.graph())
    views = ("flatten", "reshape", "permute", "slice", "expand")
    assert (work.layers + work.copies > 0) == (row.op not in views and "numpy" not in row.unsupported)

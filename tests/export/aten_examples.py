"""A valid call of every operation of PyTorch that a file may name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hypersparse.export.aten_ops import ALLOWED, ELEMENTWISE, meant_arguments
from hypersparse_runtime.graph import INPUT, Graph, Node

X: dict[str, Any] = {"input": 0}
W, B, MEAN, VARIANCE = ({"tensor": role} for role in ("w", "b", "m", "v"))
PLANES, SIGNAL, VOLUME, ROWS = (4, 6, 6), (4, 8), (4, 5, 5, 5), (3, 5)
ONE, TWO, THREE = [1], [1, 1], [1, 1, 1]


@dataclass(frozen=True)
class Example:
    """How an operation is called, on one input of a shape."""

    op: str
    shape: tuple[int, ...]
    arguments: list[Any]
    arrays: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    keywords: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False  # its arrays hold whole numbers

    def node(self) -> Node:
        """The operation, with the shape that PyTorch gives it."""
        options = {"arguments": self.arguments, "keywords": dict(self.keywords), "shape": None}
        node = Node(self.op, (INPUT,), "y", {role: f"{role}.weight" for role in self.arrays}, options)
        arguments, keywords = meant_arguments(node, [torch.ones(1, *self.shape)], self._tensors(), 1)
        _, name, overload = self.op.split(".")
        made = getattr(getattr(torch.ops.aten, name), overload)(*arguments, **keywords)
        shape = tuple(made.shape[1:]) if isinstance(made, torch.Tensor) else None
        return Node(self.op, (INPUT,), "y", node.tensors, {**options, "shape": shape})

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {role: torch.from_numpy(array) for role, array in self.values().items()}

    def values(self) -> dict[str, Any]:
        """Its arrays by their roles."""
        kind = np.int64 if self.whole else np.float32
        return {role: np.ones(shape, kind) for role, shape in self.arrays.items()}

    def graph(self) -> Graph:
        """A network of this operation; the first of its values if it gives several."""
        node = self.node()
        nodes = [node]
        if node.options["shape"] is None:
            shape = self._first_shape(node)
            nodes.append(Node("getitem", ("y",), "z", {}, {"arguments": [X, 0], "keywords": {}, "shape": shape}))
        arrays = {f"{role}.weight": array for role, array in self.values().items()}
        return Graph(self.shape, tuple(nodes), arrays)

    def _first_shape(self, node: Node) -> tuple[int, ...]:
        arguments, keywords = meant_arguments(node, [torch.ones(1, *self.shape)], self._tensors(), 1)
        _, name, overload = self.op.split(".")
        return tuple(getattr(getattr(torch.ops.aten, name), overload)(*arguments, **keywords)[0].shape[1:])


def _example(op: str, shape: tuple[int, ...], *arguments: Any, whole: bool = False, **more: Any) -> Example:
    arrays = {role: more.pop(role) for role in ("w", "b", "m", "v") if role in more}
    name = op if "." in op else f"{op}.default"
    return Example(f"aten.{name}", shape, list(arguments), arrays, more, whole)


STATISTICS: dict[str, Any] = {"w": (4,), "b": (4,), "m": (4,), "v": (4,)}
WINDOW = {"w": (2, 4, 3, 3), "b": (2,)}
EXAMPLES = (
    *(_example(name, PLANES, X) for name in sorted(ELEMENTWISE - {"clamp", "clamp_max", "clamp_min"})),
    *(_example(name, PLANES, X) for name in ("cos", "sin", "logit", "reciprocal", "amax", "amin")),
    *(_example(name, PLANES, X) for name in ("mean", "sum", "var", "squeeze")),
    *(_example(name, PLANES, X, 0.5) for name in ("clamp", "clamp_max", "clamp_min")),
    *(_example(f"{name}.Tensor", PLANES, X, W, w=(4, 1, 1)) for name in ("clamp", "clamp_max", "clamp_min")),
    *(_example(f"{name}.Tensor", PLANES, X, W, w=(4, 1, 1)) for name in ("add", "sub", "rsub", "mul", "div")),
    *(_example(f"{name}.Scalar", PLANES, X, 2) for name in ("add", "sub", "rsub", "mul", "div")),
    _example("div.Tensor_mode", PLANES, X, W, w=(4, 1, 1), rounding_mode="floor"),
    _example("div.Scalar_mode", PLANES, X, 2, rounding_mode="trunc"),
    _example("pow.Tensor_Tensor", PLANES, X, W, w=(4, 1, 1)),
    _example("pow.Tensor_Scalar", PLANES, X, 2),
    _example("pow.Scalar", PLANES, 2, X),
    _example("maximum", PLANES, X, W, w=(4, 1, 1)),
    _example("minimum", PLANES, X, W, w=(4, 1, 1)),
    _example("prelu", PLANES, X, W, w=(4,)),
    _example("_log_softmax", PLANES, X, 1, False),
    _example("_softmax", PLANES, X, 1, False),
    _example("log_softmax.int", PLANES, X, 1),
    _example("softmax.int", PLANES, X, 1),
    _example("_to_copy", PLANES, X, dtype={"dtype": "float64"}),
    _example("cumsum", PLANES, X, 1),
    _example("mean.dim", PLANES, X, [2, 3]),
    _example("sum.dim_IntList", PLANES, X, [2, 3]),
    _example("var.dim", PLANES, X, [2, 3]),
    _example("var.correction", PLANES, X, [1]),
    _example("addmm", (5,), B, X, W, w=(5, 3), b=(3,)),
    _example("bmm", ROWS, X, W, w=(1, 5, 2)),
    _example("einsum", PLANES, "nchw,cd->ndhw", [X, W], w=(4, 3)),
    _example("linear", ROWS, X, W, B, w=(2, 5), b=(2,)),
    _example("matmul", ROWS, X, W, w=(5, 2)),
    _example("mm", (5,), X, W, w=(5, 2)),
    _example("scaled_dot_product_attention", (2, 3, 5), X, X, X),
    _example("conv1d", SIGNAL, X, W, B, ONE, ONE, ONE, 1, w=(2, 4, 3), b=(2,)),
    _example("conv1d.padding", SIGNAL, X, W, B, ONE, "same", ONE, 1, w=(2, 4, 3), b=(2,)),
    _example("conv2d", PLANES, X, W, B, TWO, TWO, TWO, 1, **WINDOW),
    _example("conv2d.padding", PLANES, X, W, B, TWO, "valid", TWO, 1, **WINDOW),
    _example("conv3d", VOLUME, X, W, None, THREE, THREE, THREE, 1, w=(2, 4, 3, 3, 3)),
    _example("conv3d.padding", VOLUME, X, W, None, THREE, "valid", THREE, 1, w=(2, 4, 3, 3, 3)),
    _example("convolution", PLANES, X, W, B, TWO, TWO, TWO, False, [0, 0], 1, **WINDOW),
    _example("conv_transpose1d", SIGNAL, X, W, None, [2], [1], [1], 1, ONE, w=(4, 2, 3)),
    _example("conv_transpose2d.input", PLANES, X, W, None, [2, 2], TWO, TWO, 1, TWO, w=(4, 2, 3, 3)),
    _example("conv_transpose3d.input", VOLUME, X, W, None, [2, 2, 2], THREE, THREE, 1, THREE, w=(4, 2, 3, 3, 3)),
    _example("batch_norm", PLANES, X, W, B, MEAN, VARIANCE, False, 0.1, 1e-5, False, **STATISTICS),
    _example("_native_batch_norm_legit_no_training", PLANES, X, W, B, MEAN, VARIANCE, 0.1, 1e-5, **STATISTICS),
    _example("instance_norm", PLANES, X, W, B, None, None, True, 0.1, 1e-5, False, w=(4,), b=(4,)),
    _example("group_norm", PLANES, X, 2, W, B, 1e-5, False, w=(4,), b=(4,)),
    _example("native_group_norm", PLANES, X, W, B, {"batch": 1}, 4, 36, 2, 1e-5, w=(4,), b=(4,)),
    _example("layer_norm", PLANES, X, [6], W, B, 1e-5, False, w=(6,), b=(6,)),
    _example("native_layer_norm", PLANES, X, [6, 6], W, B, 1e-5, w=(6, 6), b=(6, 6)),
    _example("rms_norm", PLANES, X, [6], W, 1e-5, w=(6,)),
    _example("adaptive_avg_pool1d", SIGNAL, X, [3]),
    _example("adaptive_avg_pool2d", PLANES, X, [4, 4]),
    _example("adaptive_max_pool2d", PLANES, X, [4, 4]),
    _example("avg_pool1d", SIGNAL, X, [3], [2], [1], True),
    _example("avg_pool2d", PLANES, X, [3, 3], [2, 2], [1, 1], True, False, 5),
    _example("max_pool1d", SIGNAL, X, [3], [2], [1], [1], True),
    _example("max_pool2d", PLANES, X, [3, 3], [2, 2], [1, 1], [2, 2], True),
    _example("max_pool3d", VOLUME, X, [3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1], True),
    _example("upsample_bilinear2d", PLANES, X, [12, 9], False, 2.0, 1.5),
    _example("upsample_bilinear2d.vec", PLANES, X, None, True, [2.0, 1.5]),
    _example("upsample_nearest2d", PLANES, X, [12, 9], 2.0, 1.5),
    _example("upsample_nearest2d.vec", PLANES, X, [12, 9], None),
    _example("constant_pad_nd", PLANES, X, [1, 2, 0, 1], 0.5),
    _example("pad", PLANES, X, [1, 2, 0, 1], "reflect"),
    _example("reflection_pad1d", SIGNAL, X, [1, 2]),
    _example("reflection_pad2d", PLANES, X, [1, 2, 0, 1]),
    _example("replication_pad2d", PLANES, X, [1, 2, 0, 1]),
    _example("_unsafe_view", PLANES, X, [{"batch": 1}, 144]),
    _example("cat", PLANES, [X, X], 1),
    _example("channel_shuffle", PLANES, X, 2),
    _example("chunk", PLANES, X, 2, 1),
    _example("expand", (4, 1, 6), X, [-1, 4, 3, 6]),
    _example("flatten.using_ints", PLANES, X, 1),
    _example("index_select", PLANES, X, 1, W, w=(3,), whole=True),
    _example("movedim.int", PLANES, X, 1, 3),
    _example("movedim.intlist", PLANES, X, [1, 2], [2, 3]),
    _example("narrow", PLANES, X, 1, 1, 2),
    _example("permute", PLANES, X, [0, 2, 3, 1]),
    _example("pixel_shuffle", PLANES, X, 2),
    _example("pixel_unshuffle", PLANES, X, 2),
    _example("reshape", PLANES, X, [{"batch": 1}, -1]),
    _example("roll", PLANES, X, [1, 2], [1, 2]),
    _example("select.int", PLANES, X, 1, 2),
    _example("slice.Tensor", PLANES, X, 2, 1, 2**63 - 1, 2),
    _example("split", PLANES, X, [1, 3], 1),
    _example("split.Tensor", PLANES, X, 3, 1),
    _example("split.sizes", PLANES, X, [1, 3], 1),
    _example("split_with_sizes", PLANES, X, [1, 3], 1),
    _example("squeeze.dim", (4, 1, 6), X, 2),
    _example("squeeze.dims", (4, 1, 6), X, [2]),
    _example("stack", PLANES, [X, X], 1),
    _example("t", (4,), X),
    _example("transpose.int", PLANES, X, 1, 2),
    _example("unflatten.int", PLANES, X, 1, [2, 2]),
    _example("unsqueeze", PLANES, X, 1),
    _example("view", PLANES, X, [{"batch": 1}, 144]),
)
assert {example.op.removeprefix("aten.").removesuffix(".default") for example in EXAMPLES} == ALLOWED

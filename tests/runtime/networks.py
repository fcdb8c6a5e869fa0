"""Small random networks as graphs, and what PyTorch says that they compute."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from hypersparse_runtime import SparseModel
from hypersparse_runtime.graph import INPUT, Graph, Node, shapes
from hypersparse_runtime.kernel_library import load_kernel


def sparse_(model: nn.Module, sparsity: float, seed: int = 0) -> nn.Module:
    """Zero random weights and give batch norms statistics and biases that matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.weight *= torch.rand(module.weight.shape, generator=generator) >= sparsity
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.weight, module.bias, module.running_mean):
                    assert isinstance(tensor, Tensor)
                    tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.5)
    return model.eval()


def computed(graph: Graph, images: np.ndarray) -> np.ndarray:
    """The outputs, in double precision by PyTorch."""
    return _values(graph, images)[graph.output].numpy()


def largest(graph: Graph, images: np.ndarray) -> float:
    """The largest number of any value: what rounding is relative to, where the outputs are clipped or shares."""
    return max(float(value.abs().max()) for value in _values(graph, images).values())


def _values(graph: Graph, images: np.ndarray) -> dict[str, Tensor]:
    values = {INPUT: torch.from_numpy(images).double()}
    for node in graph.nodes:
        values[node.output] = _apply(graph, node, [values[name] for name in node.inputs])
    return values


def _apply(graph: Graph, node: Node, inputs: list[Tensor]) -> Tensor:
    given = {role: torch.from_numpy(graph.tensors[name]).double() for role, name in node.tensors.items()}
    x, options = inputs[0], dict(node.options)
    if node.op == "batch_norm":
        norm = (given["mean"], given["variance"], given["weight"], given["bias"])
        return functional.batch_norm(x, *norm, eps=options["epsilon"])
    kernel = options.pop("kernel", None)
    low, high = options.get("low"), options.get("high")
    results: dict[str, Any] = {
        "conv": lambda: functional.conv2d(x, given["weight"], given.get("bias"), **options),
        "linear": lambda: functional.linear(x, given["weight"], given.get("bias")),
        "relu": lambda: x.relu(),
        "clip": lambda: torch.clamp(x, low, high),
        "add": lambda: x + inputs[1],
        "concat": lambda: torch.cat(inputs, 1),
        "plane": lambda: x + given["value"],
        "max_pool": lambda: functional.max_pool2d(x, kernel, **options),
        "avg_pool": lambda: functional.avg_pool2d(x, kernel, **options),
        "mean": lambda: x.mean((2, 3)),
        "flatten": lambda: x.flatten(1),
        "softmax": lambda: x.softmax(1),
        "log_softmax": lambda: x.log_softmax(1),
    }
    result: Tensor = results[node.op]()
    return result


@dataclass
class Builder:
    """A graph in the making."""

    draw: st.DrawFn
    shape: tuple[int, ...]
    rng: np.random.Generator
    sparsity: float
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def graph(self) -> Graph:
        """So far."""
        return Graph(self.shape, tuple(self.nodes), self.tensors)

    def array(self, *shape: int, kept: float = 1.0) -> str:
        """A new random array, partly zero."""
        name = f"t{len(self.tensors)}"
        values = self.rng.normal(size=shape) * (self.rng.random(shape) < kept)
        self.tensors[name] = values.astype(np.float32)
        return name

    def add(self, op: str, *inputs: str, **parts: Any) -> str:
        """A new node; arrays are strings, all else options."""
        name = f"v{len(self.nodes)}"
        tensors = {role: part for role, part in parts.items() if isinstance(part, str)}
        options = {role: part for role, part in parts.items() if not isinstance(part, str)}
        self.nodes.append(Node(op, inputs, name, tensors, options))
        return name

    def norm(self, x: str, channels: int) -> str:
        """A batch norm."""
        names = {role: self.array(channels) for role in ("weight", "bias", "mean", "variance")}
        self.tensors[names["variance"]] = np.abs(self.tensors[names["variance"]]) + np.float32(0.5)
        return self.add("batch_norm", x, **names, epsilon=1e-5)

    def conv(self, x: str, channels: int, width: int, kernel: tuple[int, int], **options: Any) -> str:
        """A convolution; options that are not given are drawn."""
        groups = options.get("groups", 1)
        pairs = {"stride": (1, 3), "padding": (0, 3), "dilation": (1, 2)}
        for name, (low, high) in pairs.items():
            options.setdefault(name, (self.draw(st.integers(low, high)), self.draw(st.integers(low, high))))
        weight = self.array(width, channels // groups, *kernel, kept=1 - self.sparsity)
        bias = {"bias": self.array(width)} if self.draw(st.booleans()) else {}
        return self.add("conv", x, weight=weight, **bias, **{"groups": 1, **options})

    def same(self, x: str, channels: int, width: int, stride: int = 1) -> str:
        """A 3x3 convolution that keeps the sides, or halves them."""
        return self.conv(x, channels, width, (3, 3), stride=(stride, stride), padding=(1, 1), dilation=(1, 1))

    def part(self, x: str, channels: int) -> tuple[str, int]:
        """A layer or a block of any kind."""
        kinds = ["conv", "grouped", "norm", "residual", "pool", "relu", "clip", "plane", "twice", "joined"]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "conv":
            width = self.draw(st.integers(1, 9))
            kernel = (self.draw(st.integers(1, 5)), self.draw(st.integers(1, 5)))
            return self._ending(self.conv(x, channels, width, kernel), width), width
        if kind == "grouped":
            return self._ending(
                self.conv(x, channels, channels * 2, (3, 3), groups=channels), channels * 2
            ), channels * 2
        if kind == "residual":
            return self._residual(x, channels)
        if kind == "joined":
            return self._joined(x, channels)
        if kind == "pool":
            sides = {"stride": self._sides(1, 3), "padding": self._sides(0, 1)}
            return self.add(
                self.draw(st.sampled_from(["max_pool", "avg_pool"])), x, kernel=self._sides(2, 3), **sides
            ), channels
        if kind == "plane":
            return self.add("plane", x, value=self.array(*shapes(self.graph())[x])) if self.nodes else x, channels
        if kind == "twice":
            return self.add("add", x, x), channels
        return self.norm(x, channels) if kind == "norm" else self._activated(x, clipped=kind == "clip"), channels

    def _sides(self, low: int, high: int) -> tuple[int, int]:
        return self.draw(st.integers(low, high)), self.draw(st.integers(low, high))

    def _ending(self, x: str, width: int) -> str:
        if self.draw(st.booleans()):
            x = self.norm(x, width)
        return self._activated(x, clipped=self.draw(st.booleans())) if self.draw(st.booleans()) else x

    def _activated(self, x: str, *, clipped: bool) -> str:
        bounds = [{"low": 0.0, "high": 1.5}, {"low": -0.5, "high": 0.25}, {"low": 0.5}, {"high": -0.5}]
        return self.add("clip", x, **self.draw(st.sampled_from(bounds))) if clipped else self.add("relu", x)

    def _joined(self, x: str, channels: int) -> tuple[str, int]:
        """Some values of one size behind each other, perhaps with a norm and a ReLU for all of them."""
        stride = self.draw(st.integers(1, 2))
        pool = {"kernel": (3, 3), "stride": (stride, stride), "padding": (1, 1)}
        parts: list[tuple[str, int]] = []
        for kind in self.draw(st.lists(st.sampled_from(["conv", "pool", "same", "again"]), min_size=1, max_size=4)):
            if kind == "again" and parts:
                parts.append(parts[-1])
            elif kind == "conv" or (kind == "same" and stride > 1):
                more = self.draw(st.integers(1, 5))
                parts.append((self._ending(self.same(x, channels, more, stride), more), more))
            else:
                parts.append((x if kind == "same" else self.add("max_pool", x, **pool), channels))
        width = sum(more for _, more in parts)
        return self._ending(self.add("concat", *(part for part, _ in parts)), width), width

    def _residual(self, x: str, channels: int) -> tuple[str, int]:
        width, stride, before = (
            channels + self.draw(st.sampled_from([0, 2])),
            self.draw(st.integers(1, 2)),
            self.draw(st.booleans()),
        )
        inner = self.add("relu", self.norm(x, channels)) if before else x
        inner = self.same(inner, channels, width, stride)
        inner = inner if before else self.add("relu", self.norm(inner, width))
        inner = self.norm(self.same(inner, width, width), width)
        if width != channels or stride > 1:
            sizes = {"stride": (stride, stride), "padding": (0, 0), "dilation": (1, 1)}
            x = self.conv(x, channels, width, (1, 1), **sizes)
        total = self.add("add", *((x, inner) if self.draw(st.booleans()) else (inner, x)))
        return (total if before else self._activated(total, clipped=self.draw(st.booleans()))), width


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A network of a few layers of all kinds on images of any shape."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(4, 20)), draw(st.integers(4, 35)))
    sparsity = draw(st.sampled_from([0.0, 0.5, 0.8, 0.95, 1.0]))
    builder = Builder(draw, shape, np.random.default_rng(draw(st.integers(0, 99))), sparsity)
    x, channels = INPUT, shape[0]
    for _ in range(draw(st.integers(1, 5))):
        before = len(builder.nodes)
        y, width = builder.part(x, channels)
        try:
            shapes(builder.graph())
        except ValueError:  # the image has become smaller than a kernel
            del builder.nodes[before:]
            continue
        x, channels = y, width
    ending = draw(st.sampled_from(["mean", "flatten", "image"]))
    if ending == "image":
        builder.add("relu", x) if not builder.nodes else None
        return builder.graph()
    x = builder.add(ending, x)
    size = shapes(builder.graph())[x][0]
    if draw(st.booleans()):
        x = builder.add("relu", builder.norm(x, size))
    x = builder.add("linear", x, weight=builder.array(6, size, kept=1 - sparsity), bias=builder.array(6))
    x = builder.add("add", x, builder.add("relu", builder.norm(x, 6)))
    x = builder.add("linear", x, weight=builder.array(3, 6))
    if (shares := draw(st.sampled_from(["", "softmax", "log_softmax"]))) != "":
        builder.add(shares, x)
    return builder.graph()


def check_levels(graph: Graph, images: np.ndarray, wanted: np.ndarray) -> None:
    """Every instruction set gives what is wanted, to an image alone and to all side by side the same bits."""
    found = {}
    for level in load_kernel().levels:
        model = SparseModel(graph, engine="hypersparse", threads=1, instructions=level)
        found[level] = np.concatenate([model(image[None]) for image in images])
        assert np.abs(found[level] - wanted).max() <= 1e-5 * np.abs(wanted).max()
        many = np.empty_like(found[level])
        model._engine._side_by_side().run(images.ctypes.data, many.ctypes.data, len(images))  # type: ignore[attr-defined]
        np.testing.assert_array_equal(many, found[level])
    if "avx512" in found:  # plain x86-64 has no fused product and sum
        np.testing.assert_array_equal(found["avx512"], found["avx2"])

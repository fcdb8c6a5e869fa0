"""Networks for images of 224x224 by their shapes: their arrays have no memory, and a share of their weights counts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hypersparse_runtime.graph import INPUT, Graph, Node

SIDE, CLASSES = 224, 1000
DENSITY = 0.002


@dataclass
class Shapes:
    """A graph in the making; values are known by their names, and their channels by `channels`."""

    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=lambda: {INPUT: 3})

    def add(self, op: str, *inputs: str, channels: int = 0, arrays: Any = (), **options: Any) -> str:
        """A node; `arrays` are roles and shapes."""
        name = f"v{len(self.nodes) + 1}"
        roles = {}
        for role, shape in dict(arrays).items():
            roles[role] = f"{name}.{role}"
            self.tensors[roles[role]] = np.broadcast_to(np.float32(0), shape)
        self.nodes.append(Node(op, inputs, name, roles, options))
        self.channels[name] = channels or sum(self.channels[x] for x in inputs[: None if op == "concat" else 1])
        return name

    def conv(self, x: str, width: int, kernel: int, stride: int = 1) -> str:
        """A convolution that keeps the sides, or halves them."""
        options = {"stride": (stride, stride), "padding": (kernel // 2,) * 2, "dilation": (1, 1), "groups": 1}
        shape = (width, self.channels[x], kernel, kernel)
        return self.add("conv", x, channels=width, arrays={"weight": shape}, **options)

    def norm(self, x: str) -> str:
        """A batch norm and a ReLU."""
        roles = dict.fromkeys(("weight", "bias", "mean", "variance"), (self.channels[x],))
        return self.add("relu", self.add("batch_norm", x, arrays=roles, epsilon=1e-5))

    def pool(self, x: str, kernel: int, op: str = "max_pool") -> str:
        """Every second row and column."""
        return self.add(op, x, kernel=(kernel, kernel), stride=(2, 2), padding=(kernel // 2 if kernel > 2 else 0,) * 2)

    def linear(self, x: str, features: int, width: int) -> str:
        """A linear layer."""
        return self.add("linear", x, channels=width, arrays={"weight": (width, features)})

    def graph(self) -> tuple[Graph, dict[str, int]]:
        """The network, and how many elements of its arrays are not zero."""
        kept = {
            name: int(prod(array.shape) * (DENSITY if array.ndim > 1 else 1)) for name, array in self.tensors.items()
        }
        return Graph((3, SIDE, SIDE), tuple(self.nodes), self.tensors), kept


def resnet(blocks: tuple[int, ...]) -> tuple[Graph, dict[str, int]]:
    """With bottlenecks."""
    net = Shapes()
    x = net.pool(net.norm(net.conv(INPUT, 64, 7, 2)), 3)
    for stage, count in enumerate(blocks):
        for block in range(count):
            width, stride = 64 * 2**stage, 2 if stage and not block else 1
            y = net.norm(net.conv(net.norm(net.conv(x, width, 1)), width, 3, stride))
            y = net.conv(y, 4 * width, 1)
            x = net.norm(net.add("add", y, net.conv(x, 4 * width, 1, stride) if not block else x))
    net.linear(net.add("mean", x), net.channels[x], CLASSES)
    return net.graph()


def vgg(convs: tuple[int, ...]) -> tuple[Graph, dict[str, int]]:
    """With its three linear layers."""
    net, x = Shapes(), INPUT
    for stage, count in enumerate(convs):
        for _ in range(count):
            x = net.norm(net.conv(x, min(512, 64 * 2**stage), 3))
        x = net.pool(x, 2)
    x = net.linear(net.add("flatten", x, channels=25088), 25088, 4096)
    x = net.linear(net.add("relu", x), 4096, 4096)
    net.linear(net.add("relu", x), 4096, CLASSES)
    return net.graph()


def densenet(blocks: tuple[int, ...], growth: int = 32) -> tuple[Graph, dict[str, int]]:
    """Every layer reads all those before it."""
    net = Shapes()
    x = net.pool(net.norm(net.conv(INPUT, 2 * growth, 7, 2)), 3)
    for stage, count in enumerate(blocks):
        parts = [x]
        for _ in range(count):
            y = net.conv(net.norm(net.add("concat", *parts)), 4 * growth, 1)
            parts.append(net.conv(net.norm(y), growth, 3))
        x = net.norm(net.add("concat", *parts))
        x = net.pool(net.conv(x, net.channels[x] // 2, 1), 2, "avg_pool") if stage < len(blocks) - 1 else x
    net.linear(net.add("mean", x), net.channels[x], CLASSES)
    return net.graph()


IMAGENET: dict[str, Callable[[], tuple[Graph, dict[str, int]]]] = {
    "resnet50": lambda: resnet((3, 4, 6, 3)),
    "resnet152": lambda: resnet((3, 8, 36, 3)),
    "vgg16": lambda: vgg((2, 2, 3, 3, 3)),
    "vgg19": lambda: vgg((2, 2, 4, 4, 4)),
    "densenet121": lambda: densenet((6, 12, 24, 16)),
    "densenet264": lambda: densenet((6, 12, 64, 48)),
}

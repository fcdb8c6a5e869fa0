"""`Graph`: a network as plain data, a list of operations and the arrays they read.

| op | inputs | tensors | options |
| --- | --- | --- | --- |
| `conv` | x (C, H, W) | `weight` (O, C / groups, h, w), `bias` (O) or none | `stride`, `padding`, `dilation`: pairs; `groups` |
| `linear` | x (C) | `weight` (O, C), `bias` (O) or none | |
| `batch_norm` | x (C, H, W) or (C) | `weight`, `bias`, `mean`, `variance` (C) | `epsilon` |
| `relu` | x | | |
| `add` | x, y of one shape | | |
| `plane` | x | `value`, of the shape of x | |
| `max_pool`, `avg_pool` | x (C, H, W) | | `kernel`, `stride`, `padding`: pairs; `avg_pool` counts padding |
| `mean` | x (C, H, W), over H and W, gives (C) | | |
| `flatten` | x, gives a vector in C order | | |

Shapes are of one image; a batch is in front of all of them. The last node's output is the network's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPS = ("conv", "linear", "batch_norm", "relu", "add", "plane", "max_pool", "avg_pool", "mean", "flatten")
INPUT = "input"  # name of the value that a network is given

Option = int | float | tuple[int, int]


@dataclass(frozen=True)
class Node:
    """One operation: what it reads and the value it makes, by name."""

    op: str
    inputs: tuple[str, ...]
    output: str
    tensors: Mapping[str, str] = field(default_factory=dict)  # by role, the name of an array of the graph
    options: Mapping[str, Option] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: operations in an order in which each finds its inputs made."""

    input_shape: tuple[int, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any] = field(default_factory=dict)  # classes, normalisation, recipe and the like: plain JSON

    @property
    def output(self) -> str:
        """The name of the network's value."""
        return self.nodes[-1].output

    def array(self, node: Node, role: str) -> np.ndarray[Any, Any] | None:
        """A node's array, such as its `weight`; None if it has none."""
        name = node.tensors.get(role)
        return None if name is None else self.tensors[name]

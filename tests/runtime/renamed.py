"""A `.hsp` file in which something has another name, which our own writer would refuse."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from hypersparse_runtime.container import container, sections_of
from hypersparse_runtime.file import pack
from hypersparse_runtime.graph import INPUT, Graph, Node

NAME = "layer.weight"
# PyTorch pastes a module's name into the source of a function; this one ends that function and begins another.
ESCAPE = 'a")\rgetattr(__import__("os"),"system")("touch escaped")\rdef g(self, x):#.weight'


def example() -> Graph:
    """A linear layer."""
    node = Node("linear", (INPUT,), "v1", {"weight": NAME})
    return Graph((4,), (node,), {NAME: np.ones((2, 4), np.float32)}, {"classes": ["a", "b"]})


def renamed(path: Path, name: str, *, part: str = "array") -> Path:
    """A whole file whose array, or the operation's `op`, `role` or `option`, has this name."""
    sections, about = sections_of(pack(example()))
    text: dict[str, Any] = json.loads(zlib.decompress(sections["graph"]))
    node = text["nodes"][0]
    if part == "array":
        text["arrays"][0][0] = name
    elif part == "op":
        node[0] = name
    elif part == "role":
        node[2] = {name: 0}
    else:
        node[3] = {name: 1}
    changed = {**sections, "graph": zlib.compress(json.dumps(text).encode())}
    path.write_bytes(container(changed, json.dumps(about)))
    return path

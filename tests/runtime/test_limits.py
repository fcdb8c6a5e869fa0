"""What a file of some hundred bytes can claim is refused before anything is made of it."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hypersparse_runtime import limits
from hypersparse_runtime.container import FileError
from hypersparse_runtime.file import pack, unpack
from hypersparse_runtime.graph import INPUT, Graph, Node

WEIGHT = np.ones((1, 1, 3, 3), np.float32)


def conv(**options: Any) -> Graph:
    whole = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1} | options
    return Graph((1, 4, 4), (Node("conv", (INPUT,), "v1", {"weight": "w"}, whole),), {"w": WEIGHT})


def pool(op: str, kernel: int) -> Graph:
    options = {"kernel": (kernel, kernel), "stride": (1, 1), "padding": (kernel // 2, kernel // 2)}
    return Graph((1, 4, 4), (Node(op, (INPUT,), "v1", {}, options),), {})


def relus(count: int, shape: tuple[int, ...]) -> Graph:
    names = [INPUT, *(f"v{number}" for number in range(1, count + 1))]
    nodes = (Node("relu", (before,), after) for before, after in pairwise(names))
    return Graph(shape, tuple(nodes), {})


HOSTILE = {
    "a padding beyond 32 bits": conv(padding=(2**40, 2**40), stride=(2**30, 2**30)),
    "a padding of terabytes": conv(padding=(2**20, 2**20), stride=(2**16, 2**16)),
    "a dilation that needs one": conv(padding=(2**31, 2**31), dilation=(2**31, 2**31)),
    "a stride beyond 32 bits": conv(padding=(1, 1), stride=(2**62, 2**62)),
    "a large pool": pool("max_pool", 2**40),
    "a pool of terabytes": pool("avg_pool", 2**20),
    "a large input": relus(1, (1, 8192, 8192)),
    "many large values": relus(10, (1, 4096, 4096)),
    "many operations": relus(20_000, (1,)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_too_large_is_neither_written_nor_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match="most"):
        pack(HOSTILE[name])
    with monkeypatch.context() as without_limits:
        without_limits.setattr("hypersparse_runtime.file.check_sizes", lambda graph: None)
        content = pack(HOSTILE[name])
    with pytest.raises(FileError, match="most"):
        unpack(content)


def test_a_kernel_without_elements_is_refused() -> None:
    graph = Graph((1, 4, 4), conv().nodes, {"w": np.ones((1, 1, 0, 3), np.float32)})
    with pytest.raises(FileError, match="weight that does not fit"):
        pack(graph)


def test_the_limits_are_what_is_still_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_OF_A_VALUE", 16)
    monkeypatch.setattr(limits, "MOST_OF_ALL_VALUES", 64)
    monkeypatch.setattr(limits, "MOST_NODES", 3)
    assert unpack(pack(relus(3, (1, 4, 4)))).input_shape == (1, 4, 4)
    with pytest.raises(FileError, match="4 operations"):
        pack(relus(4, (1, 2, 2)))
    with pytest.raises(FileError, match="has 17 elements"):
        pack(relus(1, (17,)))
    with pytest.raises(FileError, match="36 elements with what pads it"):
        pack(conv(padding=(1, 1)))
    monkeypatch.setattr(limits, "MOST_OF_ALL_VALUES", 63)
    with pytest.raises(FileError, match="64 elements together"):
        pack(relus(3, (1, 4, 4)))

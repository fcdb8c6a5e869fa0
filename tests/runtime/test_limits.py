"""What a file of some hundred bytes can claim is refused before anything is made of it."""

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hypersparse_runtime import SparseModel, limits
from hypersparse_runtime.container import FileError
from hypersparse_runtime.file import pack, unpack
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.runtime.imagenet import IMAGENET

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
        without_limits.setattr("hypersparse_runtime.file.check_sizes", lambda graph, **rest: None)
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


def concats(count: int) -> Graph:
    """Each value is twice as long as the one before."""
    names = [INPUT, *(f"v{number}" for number in range(1, count + 1))]
    return Graph((1, 1, 1), tuple(Node("concat", (x, x), y) for x, y in pairwise(names)), {})


def wide(channels: int, op: str = "relu") -> Graph:
    return Graph((channels, 1, 1), (Node(op, (INPUT,), "v1"),), {})


def empty_rows(rows: int) -> Graph:
    return Graph((1, 1, 1), conv().nodes, {"w": np.zeros((rows, 1, 1, 1), np.float32)})


def dense(channels: int, side: int, kernel: int) -> Graph:
    """Weights that are all the same and take no bytes."""
    whole = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    node = Node("conv", (INPUT,), "v1", {"weight": "w"}, whole)
    return Graph((channels, side, side), (node,), {"w": np.ones((channels, channels, kernel, kernel), np.float32)})


def one_weight(count: int, channels: int) -> Graph:
    """Many operations that read one array."""
    names = [INPUT, *(f"v{number}" for number in range(1, count + 1))]
    whole = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    nodes = tuple(Node("conv", (x,), y, {"weight": "w"}, whole) for x, y in pairwise(names))
    return Graph((channels, 1, 1), nodes, {"w": np.ones((channels, channels, 1, 1), np.float32)})


def joins(count: int, inputs: int) -> Graph:
    return Graph((3, 1, 1), tuple(Node("concat", (INPUT,) * inputs, f"v{each + 1}") for each in range(count)), {})


def window(op: str, channels: int, side: int, kernel: int, padding: int = 0) -> Graph:
    options = {"kernel": (kernel, kernel), "stride": (1, 1), "padding": (padding, padding)}
    return Graph((channels, side, side), (Node(op, (INPUT,), "v1", {}, options),), {})


def rows_of_all_kinds(count: int) -> Graph:
    """Layers that each become three steps of a program."""
    names, weight = [INPUT, *(f"v{number}" for number in range(1, count + 1))], np.zeros((5, 5, 3, 3), np.float32)
    for row, kept in enumerate((0, 1, 3, 12, 45)):
        weight[row].reshape(-1)[np.random.default_rng(row).permutation(45)[:kept]] = 1
    whole = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    nodes = tuple(Node("conv", (x,), y, {"weight": "w", "bias": "b"}, whole) for x, y in pairwise(names))
    return Graph((5, 33, 33), nodes, {"w": weight, "b": np.ones(5, np.float32)})


COSTLY = {  # all took more than 5 seconds or several GB, and have less than 12 KB
    "a huge window": (window("max_pool", 1, 4000, 2001), "products"),
    "an average over a huge window": (window("avg_pool", 1, 4000, 2001), "products"),
    "an average over the whole image and its padding": (window("avg_pool", 8, 700, 700, padding=1), "seconds"),
    "averages over many channels": (window("avg_pool", 2000, 64, 60), "seconds"),
    "a kernel as large as the image": (dense(1, 1500, 750), "products"),
    "millions of channels": (wide(2**22), "channels"),
    "millions of empty rows": (empty_rows(2**22), "channels"),
    "concatenations of concatenations": (concats(20), "channels"),
    "concatenations of many": (joins(300, 1000), "seconds"),
    "a weight that is read often": (one_weight(500, 500), "seconds"),
    "4,096 layers of rows of all kinds": (rows_of_all_kinds(4096), "seconds"),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_file_that_would_take_long_to_load_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, reason = COSTLY[name]
    with monkeypatch.context() as without_limits:
        without_limits.setattr("hypersparse_runtime.file.check_sizes", lambda graph, **rest: None)
        content = pack(graph)
    assert len(content) < 12_000
    began = time.process_time()
    with pytest.raises(FileError, match=reason):
        unpack(content)
    assert time.process_time() - began < 2.0
    with pytest.raises(FileError, match=reason):
        pack(graph)


def test_arrays_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("linear", (INPUT,), "v1", {"weight": "w"})
    graph = Graph((2048,), (node,), {"w": np.zeros((2048, 2048), np.float32)})
    content = pack(graph)
    monkeypatch.setattr(limits, "MOST_MEMORY", 2**24)
    monkeypatch.setattr("hypersparse_runtime.file._arrays", lambda *rest: pytest.fail("arrays were made"))
    with pytest.raises(FileError, match="bytes of memory"):
        unpack(content)
    with pytest.raises(FileError, match="bytes of memory"):
        pack(graph)


def test_a_larger_file_may_take_longer() -> None:
    graph = dense(300, 4, 3)
    kept = {"w": 810_000}
    limits.check_sizes(graph, kept=kept)
    limits.check_sizes(graph, kept=kept, size=1000)
    with pytest.raises(FileError, match=r"1\.6 are the most for 1000 bytes"):
        limits.check_sizes(graph, kept={"w": 2**22}, size=1000)
    limits.check_sizes(graph, kept={"w": 2**22}, size=2**22)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["relu", "clip", "add", "batch_norm"])
def test_a_long_chain_loads_in_time_that_grows_with_its_length(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,096 clips that took 28 s: every operation looked at all others. So many are in larger files only."""
    monkeypatch.setattr(limits, "MOST_SECONDS", 6.0)
    names = [INPUT, *(f"v{number}" for number in range(1, limits.MOST_NODES + 1))]
    roles = dict.fromkeys(("weight", "bias", "mean", "variance"), "one") if op == "batch_norm" else {}
    options = {"clip": {"low": 0.0, "high": 1.0}, "batch_norm": {"epsilon": 1e-5}}.get(op, {})
    nodes = [Node(op, (x, INPUT) if op == "add" else (x,), y, roles, options) for x, y in pairwise(names)]
    graph = unpack(pack(Graph((1, 4, 4), tuple(nodes), {"one": np.ones(1, np.float32)})))
    began = time.process_time()
    SparseModel(graph, engine="hypersparse", threads=1)
    assert time.process_time() - began < 6.0


@pytest.mark.parametrize("name", IMAGENET)
def test_networks_of_users_fit(name: str) -> None:
    """By their sizes alone: large networks for ImageNet at 99.8 %, each as a small file."""
    graph, kept = IMAGENET[name]()
    limits.check_sizes(graph, kept=kept, size=200_000)
    with pytest.raises(FileError, match="most"):
        limits.check_sizes(graph, kept=dict.fromkeys(kept, 10**7), size=200_000)

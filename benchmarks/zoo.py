"""Time the networks of the zoo beside their dense twins, one image at a time on one thread."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.inference import add_speedups_
from benchmarks.inference_engines import DENSE, OURS, build_engine, torch_threads
from benchmarks.networks import BenchmarkNetwork, randomize_norms_
from benchmarks.turns import time_in_turns
from hypersparse import models, zoo
from hypersparse.export.graph_module import to_module
from hypersparse.export.sparse_file import load_graph
from hypersparse.export.trace import trace
from hypersparse.zoo import Entry
from hypersparse_runtime.graph import Graph

ZooRow = dict[str, Any]


def time_zoo(names: Sequence[str], engines: Sequence[str], rounds: int, ended: Callable[[str], None]) -> list[ZooRow]:
    """A row for each network and engine; `speedup` is over the better dense engine, by CPU time."""
    rows = []
    with torch_threads(1):
        for name in names:
            rows += _rows(zoo.entry(name), engines, rounds)
            ended(name)
    return rows


def _rows(entry: Entry, engines: Sequence[str], rounds: int) -> list[ZooRow]:
    graph = load_graph(zoo.path_of(entry.name))
    sparse = BenchmarkNetwork(entry.model, entry.sparsity, "trained", graph, to_module(graph))
    dense = dense_twin(entry.model, graph)
    made = [build_engine(each, sparse if each == OURS else dense, batch=1, threads=1) for each in engines]
    images = np.random.default_rng(0).normal(size=(1, *graph.input_shape)).astype(np.float32)
    times = time_in_turns(made, images, rounds)
    rows = [
        {
            "name": entry.name,
            "engine": each.engine,
            "milliseconds": 1e3 * float(np.median(taken.cpu)),
            "milliseconds_low": 1e3 * float(np.quantile(taken.cpu, 0.1)),
            "speedup": None,
        }
        for each, taken in zip(made, times, strict=True)
    ]
    add_speedups_(rows)
    return rows


def dense_twin(model: str, graph: Graph) -> BenchmarkNetwork:
    """The same architecture with random dense weights: dense engines take as long for any values."""
    torch.manual_seed(0)
    module = models.build(model, shape=graph.input_shape, classes=len(graph.about["classes"]))
    randomize_norms_(module, torch.default_generator)
    return BenchmarkNetwork(model, 0.0, "dense", trace(module.eval(), graph.input_shape), module)


def dense_engines(installed: Callable[[str], bool]) -> list[str]:
    """The dense engines of this machine, and the sparse runtime."""
    return [*filter(installed, DENSE), OURS]

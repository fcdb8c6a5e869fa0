"""Fuzzes `load_sparse`, `shrink` and what they make with networks that look valid and are extreme.

    nice python -m tests.fuzz.fuzz_load_sparse --cases 10000 [--seed 0] [--keep FOLDER]

Every case is a file and runs in a process of its own. A crash, a signal, an error that is not ours, a load of more than
2 s a megabyte, more than 1 GB, a random number drawn, a parameter changed, and outputs that depend on what memory held
before are findings. Parameters lie before a page that cannot be read. Counts are printed at the end.
"""

import ctypes
import json
import mmap
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import hypersparse_runtime.file
from hypersparse.errors import HypersparseError
from hypersparse.export.c_source import c_source
from hypersparse.export.graph_module import to_module
from hypersparse.export.onnx import save_graph_onnx
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_graph
from hypersparse_runtime.container import FileError
from hypersparse_runtime.graph import Graph, GraphError
from tests.export.aten_examples import EXAMPLES
from tests.fuzz.children import FindingError, Outcome, check_seconds, run_cases, run_fuzzer
from tests.fuzz.extreme_graphs import random_graph

M_PERTURB = -6  # of mallopt: what memory is filled with when it is handed out


def true_shapes(graph: Graph) -> Graph:
    """With the shapes that operations give said truly, as far as `to_module` gets: it says which one is wrong."""
    for _ in graph.nodes:
        try:
            to_module(graph)
        except HypersparseError as error:
            said = str(error).split(" and gives ")
            if len(said) != 2:
                break
            wrong, right = (
                said[0].partition(" should give ")[2],
                json.loads(said[1][:-1].replace(",)", ")").replace("(", "[").replace(")", "]")),
            )
            op = said[0].partition("`")[2].partition("`")[0]
            place = next(
                (
                    at
                    for at, node in enumerate(graph.nodes)
                    if node.op == op and str(node.options.get("shape")) == wrong
                ),
                None,
            )
            if place is None or 0 in right:
                break
            node = replace(graph.nodes[place], options={**graph.nodes[place].options, "shape": tuple(right)})
            graph = replace(graph, nodes=(*graph.nodes[:place], node, *graph.nodes[place + 1 :]))
        else:
            break
    return graph


def unchecked(graph: Graph) -> bytes:
    """A whole file, whatever the network: the limits are for the reader to notice."""
    checked = hypersparse_runtime.file.check_sizes
    hypersparse_runtime.file.check_sizes = lambda graph, **rest: None  # type: ignore[assignment]
    try:
        return hypersparse_runtime.file.pack(graph)
    finally:
        hypersparse_runtime.file.check_sizes = checked


def try_file(path: Path, *, onnx: bool = False) -> Outcome:
    """Load, run, shrink and export a file in this process; errors of ours are an outcome, others are raised."""
    torch.manual_seed(0)
    drawn = torch.get_rng_state()
    started, size = time.process_time(), path.stat().st_size
    try:
        graph = load_graph(path)
        module = to_module(graph)
    except HypersparseError as error:
        check_seconds(time.process_time() - started, size)
        _check_sentence(error)
        return Outcome("refused", str(error))
    check_seconds(time.process_time() - started, size)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    said = [_run(module), _shrunk(graph, path, onnx=onnx)]
    if not torch.equal(drawn, torch.get_rng_state()):
        raise FindingError("a random number was drawn")
    if any(
        not torch.equal(value.nan_to_num(), before[name].nan_to_num()) for name, value in module.state_dict().items()
    ):
        raise FindingError("a parameter changed")
    return Outcome("ran", "; ".join(filter(None, said)))


def _check_sentence(error: HypersparseError) -> None:
    if "\n" in str(error) or len(str(error)) > 4000:
        raise FindingError(f"a message of several lines or {len(str(error))} characters")


def _run(module: nn.Module) -> str:
    like = next((value for value in module.state_dict().values() if value.is_floating_point()), torch.zeros(()))
    x = torch.linspace(-1, 1, int(np.prod(module.input_shape)), dtype=like.dtype).reshape(1, *module.input_shape)
    guard(module)
    made = []
    with torch.no_grad():
        for byte in (0x55, 0xAA):
            ctypes.CDLL(None).mallopt(M_PERTURB, byte)
            try:
                made.append(module(x))
            except HypersparseError as error:
                _check_sentence(error)
                return str(error)
            finally:
                ctypes.CDLL(None).mallopt(M_PERTURB, 0)
    if not torch.equal(made[0].double().nan_to_num(), made[1].double().nan_to_num()):
        raise FindingError("outputs depend on what memory held before")
    return ""


def guard(module: nn.Module) -> None:
    """Move every parameter and buffer to the end of pages of its own, before one that cannot be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for owner in module.modules():
        for table in (owner._parameters, owner._buffers):
            for name, value in list(table.items()):
                if value is None or not value.numel():
                    continue
                size = value.numel() * value.element_size()
                room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
                pages = mmap.mmap(-1, room + mmap.PAGESIZE)
                address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
                libc.mprotect(address + room, mmap.PAGESIZE, 0)
                moved = torch.frombuffer(pages, dtype=value.dtype, count=value.numel(), offset=room - size).reshape(
                    value.shape
                )
                moved.copy_(value.detach())
                table[name] = nn.Parameter(moved, requires_grad=False) if isinstance(value, nn.Parameter) else moved


def _shrunk(graph: Graph, path: Path, *, onnx: bool) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small = shrink_graph(graph).graph
        to_module(small)
        if onnx:
            save_graph_onnx(small, path.with_suffix(".onnx"))
        c_source(small, "network")
    except HypersparseError as error:
        _check_sentence(error)
        return str(error)
    return ""


def make_file(seed: int, path: Path) -> Outcome:
    """Write the file of a case; what cannot be written at all is no case."""
    try:
        path.write_bytes(unchecked(true_shapes(random_graph(seed))))
    except (FileError, GraphError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        return Outcome("no file", f"{type(error).__name__}")
    return Outcome("written")


def try_case(seed: int, path: Path) -> Outcome:
    """Try the file of a case."""
    outcome = try_file(path, onnx=seed % 50 == 0)
    path.with_suffix(".onnx").unlink(missing_ok=True)
    return outcome


def fuzz(seeds: range, keep: Path) -> tuple[Counter[str], list[str]]:
    """Run the cases of these seeds; what came of them, and a line for each finding, whose file is kept."""
    torch.set_num_threads(1)
    with torch.no_grad():
        for example in EXAMPLES:  # what PyTorch imports at the first call, for 1.4 s, is no work of a file's
            to_module(example.graph())(torch.ones(1, *example.shape))
    return run_cases(seeds, make_file, try_case, keep / "case.hsp")


if __name__ == "__main__":
    run_fuzzer(fuzz, cases=200)

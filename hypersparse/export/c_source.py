"""A network as C99 source: constant arrays of its kept weights and one `predict` function, without malloc."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from hypersparse.errors import ModelError
from hypersparse.export.arena import Step, plan_arena
from hypersparse.export.c_int8 import ConvAdd, IntegerCalls, kinds_of, scratch_bytes
from hypersparse.export.c_kernels import TYPES
from hypersparse.export.c_writer import BYTES, FLOAT, AnyNode, CWriter, N, fused_sums
from hypersparse.export.constants import computed
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse.export.quantized_graph import QuantizedGraph, QuantizedNode
from hypersparse.storage.files import write_text
from hypersparse_runtime.graph import INPUT, Graph, Node, Shape, shapes

SUMS = ("conv", "conv_add")  # that may add a value to their own
IN_PLACE = {name for name, each in TORCH_OPERATIONS.items() if each.c_in_place}
VIEWS = {name for name, each in TORCH_OPERATIONS.items() if each.c_view}


def save_c(network: Graph | QuantizedGraph, path: str | Path) -> int:
    """Write `path` (.c) and the header beside it (.h); returns the bytes of both.

    `<name>_predict(input, output)` computes one input in C order; it keeps its values in a static arena, so that two
    threads must not call it at once. A quantized network takes int8 and gives the integers that `integer_reference`
    computes. With a softmax it needs the C library's mathematics (`-lm`).
    """
    path = Path(path)
    source, header = c_source(network, path.stem)
    write_text(path.with_suffix(".h"), header)
    write_text(path, source)
    return len(source.encode()) + len(header.encode())


def c_source(network: Graph | QuantizedGraph, name: str) -> tuple[str, str]:
    """The text of the source and of its header, for a network called `name`."""
    prefix = re.sub(r"\W", "_", name)
    prefix = prefix if prefix[:1].isalpha() else f"network_{prefix}"
    writer = _of_integers(network) if isinstance(network, QuantizedGraph) else _of_floats(network)
    return writer.source(prefix, name), _header(prefix, network, writer)


def _of_floats(graph: Graph) -> CWriter:
    nodes, constants = _dependent(graph)
    strange = next((node.op for node in nodes if node.opaque), None)
    if strange is not None:
        raise ModelError(f"C source has no function for `{strange}`; export this network as .hsp or .onnx.")
    sums = fused_sums(nodes)
    gone = {node.output for node, _ in sums.values()}
    nodes = [node for node in nodes if node.output not in gone]
    nodes = [_with_sum(node, *sums[node.output]) if node.output in sums else node for node in nodes]
    sides = shapes(graph)
    outside = {INPUT: "input", **{name: f"constant_{place}" for place, name in enumerate(constants)}}
    nodes = _without_views_of(outside, nodes)
    steps = []
    for node in nodes:
        step = _step(node, sides, BYTES[FLOAT] * prod(sides[node.output]), outside)
        steps.append(replace(step, scratch=TORCH_OPERATIONS[node.op].c_scratch(sides[node.output])))
    writer = _writer(steps, sides, dict.fromkeys(sides, FLOAT), graph.output, outside, graph.tensors)
    for name, value in constants.items():
        writer.array(outside[name], value)
    for index, node in enumerate(nodes):
        if node.op not in VIEWS:
            writer.calls.append(TORCH_OPERATIONS[node.op].c_call(writer, node, f"l{index}"))
    return _finished(writer)


def _dependent(graph: Graph) -> tuple[list[Node], dict[str, NDArray[Any]]]:
    """The nodes whose values depend on the input, and the values of the others."""
    nodes: list[Node] = []
    constants: dict[str, NDArray[Any]] = {}
    for node in graph.nodes:
        if node.op == "constant":
            constants[node.output] = graph.tensors[node.tensors["value"]]
        elif not node.opaque and all(name in constants for name in node.inputs):
            constants[node.output] = computed(graph, node, [constants[name] for name in node.inputs])
        else:
            nodes.append(node)
    read = {name for node in nodes for name in node.inputs} | {graph.output}
    return nodes, {name: value for name, value in constants.items() if name in read}


def _with_sum(node: Node, total: Node, other: str) -> Node:
    return replace(node, inputs=(*node.inputs, other), output=total.output)


def _of_integers(network: QuantizedGraph) -> CWriter:
    sums = fused_sums(network.nodes)
    gone = {node.output for node, _ in sums.values()}
    nodes: list[QuantizedNode | ConvAdd] = []
    for node in network.nodes:
        if node.output in sums:
            total, other = sums[node.output]
            nodes.append(ConvAdd(node, total, (*node.inputs, other)))
        elif node.output not in gone:
            nodes.append(node)
    types, sides, steps, outside = kinds_of(network), network.shapes, [], {INPUT: "input"}
    nodes = _without_views_of(outside, nodes)
    for each in nodes:
        shape = sides[each.output]
        step = _step(each, sides, BYTES[types[each.output]] * prod(shape), outside)
        steps.append(replace(step, scratch=scratch_bytes(each, shape)))
    writer = _writer(steps, sides, types, network.output, outside)
    calls = IntegerCalls(writer, network.values)
    for index, each in enumerate(nodes):
        if each.op not in VIEWS:
            writer.calls.append(calls.of(each, f"l{index}"))
    return _finished(writer)


def _without_views_of(outside: dict[str, str], nodes: Sequence[N]) -> list[N]:
    """The nodes but for those that only give what lies outside of the arena other axes; these values lie there too."""
    left = []
    for node in nodes:
        if node.op in VIEWS and node.inputs[0] in outside:
            outside[node.output] = outside[node.inputs[0]]
        else:
            left.append(node)
    return left


def _step(node: AnyNode, sides: Mapping[str, Shape], size: int, outside: Collection[str]) -> Step:
    """A node's step; a convolution with a sum may lie over what it adds, but not over what it reads at other places."""
    is_sum, is_view = node.op in SUMS and len(node.inputs) > 1, node.op in VIEWS
    inside = [name for name in node.inputs if name not in outside]
    alike = [name for name in inside if sides[name] == sides[node.output]]
    over = node.inputs[-1] if is_sum or is_view else alike[-1] if alike and node.op in IN_PLACE else None
    elementwise = not is_sum and len(alike) == len(inside)
    return Step(node.inputs, node.output, size, over=over, elementwise=elementwise, is_view=is_view)


def _writer(
    steps: Sequence[Step],
    sides: Mapping[str, Shape],
    types: Mapping[str, str],
    output: str,
    outside: dict[str, str],
    tensors: Mapping[str, NDArray[Any]] = MappingProxyType({}),
) -> CWriter:
    """A writer whose arena has a place for every value but those outside and, if nothing else needs it, the output."""
    is_own = bool(steps) and not steps[-1].is_view and not any(output in step.inputs for step in steps)
    if is_own and output not in outside:
        outside[output] = "output"
    arena = plan_arena(steps, kept=output, outside=frozenset(outside))
    return CWriter(sides, types, output, arena, outside, tensors)


def _finished(writer: CWriter) -> CWriter:
    pointer = writer.pointer(writer.output)
    if pointer != "output":
        kind = writer.types[writer.output]
        writer.calls.append(f"copy_{kind}({pointer}, output, {writer.size(writer.output)});")
    return writer


def _header(prefix: str, network: Graph | QuantizedGraph, writer: CWriter) -> str:
    guard, big = f"{prefix.upper()}_H", prefix.upper()
    shape = " x ".join(str(side) for side in network.input_shape)
    given, made = (TYPES[writer.types[name]] for name in (INPUT, network.output))
    lines = [f"/* A sparse network written by hypersparse. Input: {shape}, in C order, normalised as in training. */"]
    lines += [f"#ifndef {guard}", f"#define {guard}", ""]
    if isinstance(network, QuantizedGraph):
        scales = [CWriter.number(network.values[name].scale) for name in (INPUT, network.output)]
        lines += ["#include <stdint.h>", ""]
        lines += [f"#define {big}_INPUT_SCALE {scales[0]} /* an input is round(number / scale), from -127 to 127 */"]
        lines += [f"#define {big}_OUTPUT_SCALE {scales[1]} /* a score is an output * scale */"]
    lines += [
        f"#define {big}_INPUTS {prod(network.input_shape)}",
        f"#define {big}_OUTPUTS {writer.size(network.output)}",
    ]
    lines += [f"#define {big}_ARENA {writer.arena.size} /* bytes of static memory */", ""]
    lines += [f"void {prefix}_predict(const {given} *input, {made} *output);", "", "#endif", ""]
    return "\n".join(lines)

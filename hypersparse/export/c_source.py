"""A network as C99 source: constant arrays of its kept weights and one `predict` function, without malloc."""

import re
from math import prod
from pathlib import Path

from hypersparse.errors import ModelError
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse.storage.files import write_text
from hypersparse_runtime.graph import Graph, shapes


def save_c(graph: Graph, path: str | Path) -> int:
    """Write `path` (.c) and the header beside it (.h); returns the bytes of both.

    `<name>_predict(input, output)` computes one input in C order; it keeps its values in a static buffer, so that two
    threads must not call it at once. With a softmax it needs the C library's mathematics (`-lm`).
    """
    path = Path(path)
    source, header = c_source(graph, path.stem)
    write_text(path.with_suffix(".h"), header)
    write_text(path, source)
    return len(source.encode()) + len(header.encode())


def c_source(graph: Graph, name: str) -> tuple[str, str]:
    """The text of the source and of its header, for a network called `name`."""
    strange = next((node.op for node in graph.nodes if node.opaque or not TORCH_OPERATIONS[node.op].in_c), None)
    if strange is not None:
        raise ModelError(f"C source has no function for `{strange}`; export this network as .hsp or .onnx.")
    prefix = re.sub(r"\W", "_", name)
    prefix = prefix if prefix[:1].isalpha() else f"network_{prefix}"
    writer = CWriter(graph, shapes(graph))
    for index, node in enumerate(graph.nodes):
        operation = TORCH_OPERATIONS[node.op]
        writer.place(node, in_place=operation.c_in_place, is_view=operation.c_is_view)
        writer.calls.append(operation.c_call(writer, node, f"l{index}"))
    return writer.source(prefix, name), _header(prefix, graph, prod(writer.shapes[graph.output]))


def _header(prefix: str, graph: Graph, outputs: int) -> str:
    guard = f"{prefix.upper()}_H"
    shape = " x ".join(str(side) for side in graph.input_shape)
    return (
        f"/* A sparse network written by hypersparse. Input: {shape}, in C order, normalised as in training. */\n"
        f"#ifndef {guard}\n#define {guard}\n\n"
        f"#define {prefix.upper()}_INPUTS {prod(graph.input_shape)}\n"
        f"#define {prefix.upper()}_OUTPUTS {outputs}\n\n"
        f"void {prefix}_predict(const float *input, float *output);\n\n#endif\n"
    )

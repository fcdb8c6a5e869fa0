"""ONNX files with dense weights, for ONNX Runtime, OpenVINO and other programs."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from hypersparse.errors import ModelError, OptionError
from hypersparse.export.graph_module import to_module
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.silence_torch import first_line, quiet
from hypersparse.export.trace import trace
from hypersparse.storage.files import write_atomically
from hypersparse_runtime.graph import INPUT, Graph
from hypersparse_runtime.onnx import ELEMENT_TYPES, OUTPUT, to_onnx
from hypersparse_runtime.sparse_model import takes_tokens

OPSET_OF_TORCH = 18  # the oldest that PyTorch's exporter writes
MOST_BY_TORCH = 1024  # operations that its exporter is given: for so many it took 71 s here, for 128 of them 3 s


def save_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    input_shape: Sequence[int],
    batch: int | None = None,
    shrink: bool = False,
    input_dtype: torch.dtype | None = None,
) -> int:
    """Write a model as ONNX for inputs of this shape (without the batch); returns its size in bytes.

    The file has one `input` and one `output`; its weights are dense. Parametrizations are folded into their weights.

    Args:
        model: any module with one input and one output.
        path: the file.
        input_shape: the shape of one input, such as `(3, 32, 32)`, or `(128,)` for 128 tokens.
        batch: how many inputs the file takes at once. None leaves that open, unless the model depends on it: then 1.
        shrink: whether dead structure is removed first.
        input_dtype: `torch.int64` for token numbers; the file takes them as int64.

    Raises:
        ModelError: if an operation of the model cannot be written; the message names it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     size = save_onnx(nn.Linear(4, 2), f"{folder}/linear.onnx", input_shape=(4,))
        >>> size > 0
        True
    """
    graph = trace(model, input_shape, input_dtype=input_dtype)
    return save_graph_onnx(shrink_graph(graph).graph if shrink else graph, path, batch=batch)


def save_graph_onnx(graph: Graph, path: str | Path, *, batch: int | None = None) -> int:
    """Write a graph as ONNX with one `input` and one `output`; returns its size in bytes.

    `batch` fixes how many inputs it takes at once; None leaves that open.
    """
    if batch is None:
        batch = graph.about.get("batch")  # 1 where the model was traced for single inputs only
    opaque = any(node.opaque for node in graph.nodes)
    content = _by_torch(graph, batch) if opaque else _by_hand(graph, batch)
    write_atomically(Path(path), lambda beside: _write(beside, content))
    return len(content)


def in_onnx_runtime(path: str | Path, batch: int | None = None) -> Callable[[Tensor], Tensor]:
    """A function that runs an ONNX file in ONNX Runtime, `batch` inputs at a time."""
    try:
        import onnxruntime
    except ImportError:
        raise OptionError("Running ONNX files needs ONNX Runtime: pip install onnxruntime.") from None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    takes_int64 = session.get_inputs()[0].type == "tensor(int64)"

    def run(inputs: Tensor) -> Tensor:
        inputs = inputs.long() if takes_int64 else inputs
        rest = -len(inputs) % (batch or len(inputs))
        padded = torch.cat([inputs, inputs.new_zeros(rest, *inputs.shape[1:])])
        made = [session.run(None, {INPUT: part.numpy()})[0] for part in torch.split(padded, batch or len(inputs))]
        return torch.from_numpy(np.concatenate(made))[: len(inputs)]

    return run


def _by_hand(graph: Graph, batch: int | None) -> bytes:
    # Not PyTorch's exporter where it can be avoided: for ResNet-32 it took 12 to 30 s here, this takes under 1 s.
    kinds = (str(graph.tensors[name].dtype) for node in graph.nodes for name in node.tensors.values())
    dtype = next((kind for kind in kinds if kind in ELEMENT_TYPES), "float32")
    return to_onnx(graph, batch=batch, dtype=dtype, input_dtype="int64" if takes_tokens(graph) else None)


def _by_torch(graph: Graph, batch: int | None) -> bytes:
    """Export with PyTorch's own exporter, for operations that a graph does not have."""
    if len(graph.nodes) > MOST_BY_TORCH:
        most = f"{MOST_BY_TORCH} are the most that PyTorch's ONNX exporter writes in reasonable time"
        raise ModelError(f"The network has {len(graph.nodes)} operations, and {most}; deploy it as `.hsp` instead.")
    _check_extra()
    model = to_module(graph)
    like = next(iter(model.state_dict().values()), torch.zeros(()))
    dtype = torch.int64 if takes_tokens(graph) else like.dtype
    example = torch.zeros(batch or 2, *graph.input_shape, dtype=dtype)
    dynamic = ({0: Dim("batch")},) if batch is None else None
    with quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                model,
                (example,),
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=dynamic,
                opset_version=OPSET_OF_TORCH,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
            assert program is not None
            content: bytes = program.model_proto.SerializeToString()
        except Exception as error:  # the exporter raises whatever its parts do
            raise ModelError(f"PyTorch cannot write this network as ONNX: {first_line(error)}") from None
    return content


def _check_extra() -> None:
    """Check for the two packages of PyTorch's exporter before it starts."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        said = "PyTorch writes a part of this network as ONNX, which needs the extra `onnx`"
        raise OptionError(f"{said}: pip install 'hypersparse[onnx]'.") from None


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)

"""`hypersparse export`: write a trained network to a file for other programs."""

from pathlib import Path

import typer

from hypersparse.cli.console import Console
from hypersparse.cli.load_network import Network, WriteQuery, open_to_write
from hypersparse.cli.option_groups import grouped
from hypersparse.errors import OptionError
from hypersparse.export.calibration import SHARE, calibrate, training_images
from hypersparse.export.formats import DEPLOYABLE, format_of
from hypersparse.export.quantization import quantize
from hypersparse.export.quantized_graph import QuantizedGraph
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import deployed, deployed_int8
from hypersparse.export.trace import trace
from hypersparse.export.trained_model import BareModel, TrainedModel
from hypersparse.export.verify import RANDOM_INPUTS, Predict, PredictionCheck, difference
from hypersparse_runtime.graph import Graph


@grouped
def export(
    network: Network,
    asked: WriteQuery,
    out: Path = typer.Option(
        ...,
        "--out",
        "-o",
        dir_okay=False,
        help="The file; its suffix is the format: .hsp, .html, .onnx, .c (and .h) or .safetensors.",
    ),
    deploy: bool = typer.Option(
        False, "--deploy", help="For .hsp and .html: dead structure removed, batch norm folded, values in fp16."
    ),
    shrunk: bool = typer.Option(False, "--shrink", help="For other files: dead structure removed, batch norm folded."),
    int8: bool = typer.Option(
        False,
        "--int8",
        help="With --deploy: weights in int8. For .c: weights and activations in int8, calibrated on training images.",
    ),
    batch: int | None = typer.Option(None, min=1, help="For .onnx: fixed batch size; any by default."),
) -> None:
    """Write a trained network as a small .hsp file, a web page, ONNX, C or a state_dict, and test it on test images."""
    _check_options(out, deploy=deploy, shrunk=shrunk, batch=batch, int8=int8)
    (stored, check), console = open_to_write(network, asked), Console()
    graph = trace(stored.model, stored.shape, stored.about())
    if shrunk:
        graph = shrink_graph(graph, planes=not int8).graph
    if deploy:
        graph = deployed_int8(graph) if int8 else deployed(graph, check.agrees if check else None)
    written = _quantized(graph, stored) if int8 and not deploy else graph
    chosen = format_of(out)
    size = chosen.write(written, out, batch)
    console.say(f"{out}: {size:,} bytes, {_kept(graph):,} weights that are not zero")
    predict, what = chosen.predictor(written, out, batch)
    console.say(f"{_tested(stored, predict, check, may_differ=int8)}, by {what}")


def _quantized(graph: Graph, stored: TrainedModel | BareModel) -> QuantizedGraph:
    if isinstance(stored, BareModel):
        raise OptionError("--int8 needs training images to calibrate; leave out --verify-images 0.")
    return quantize(graph, calibrate(graph, training_images(stored.dataset), share=SHARE))


def _tested(
    stored: TrainedModel | BareModel, predict: Predict, check: PredictionCheck | None, *, may_differ: bool
) -> str:
    """How the file that was written compares with the network."""
    if check is not None:
        return check.comparison(predict) if may_differ else check.sentence(predict)
    apart = difference(stored.model, predict, stored.shape)
    inputs = f"outputs for {RANDOM_INPUTS} random inputs differ by {apart:.1g} of the largest"
    return f"Not tested on images; {inputs}"


def _check_options(out: Path, *, deploy: bool, shrunk: bool, batch: int | None, int8: bool) -> None:
    chosen = format_of(out)
    if int8 and not (chosen.int8 or out.suffix in DEPLOYABLE):
        raise OptionError("--int8 is for .hsp, .html and .c files.")
    if int8 and out.suffix in DEPLOYABLE and not deploy:
        raise OptionError("For .hsp and .html files --int8 needs --deploy; without it a file holds the exact weights.")
    if deploy and out.suffix not in DEPLOYABLE:
        raise OptionError("--deploy is for .hsp and .html files; for others pass --shrink.")
    if shrunk and (deploy or out.suffix in DEPLOYABLE):
        raise OptionError("--shrink is for .onnx, .c and .safetensors; for .hsp and .html files pass --deploy.")
    if batch is not None and not chosen.fixed_batch:
        raise OptionError("--batch is for .onnx files; the others take any number of inputs.")


def _kept(graph: Graph) -> int:
    weights = [graph.array(node, "weight") for node in graph.nodes if node.weighted]
    return sum(int((weight != 0).sum()) for weight in weights if weight is not None)

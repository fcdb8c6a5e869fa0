"""Operations that change height and width: transposed convolution, resizing, pooling to a size."""

from collections.abc import Sequence
from dataclasses import replace
from math import floor, prod
from typing import Any

import numpy as np

from hypersparse_runtime.graph import Graph, Node, Shape, need
from hypersparse_runtime.limits import MOST_OF_A_VALUE, WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.base import (
    Channels,
    OnnxCall,
    Operation,
    array_of,
    check_vector,
    count,
    float32,
    pair,
    window_attributes,
)
from hypersparse_runtime.operations.layers import nonzero
from hypersparse_runtime.sparse_layers import Array, Entries, Layer
from hypersparse_runtime.value_steps.sums import ResampleStep
from hypersparse_runtime.views import View

MODES = ("nearest", "bilinear")


class ConvTranspose(Operation):
    """Transposed convolution of (C, H, W) with `weight` (C, O / groups, h, w), `bias` (O) or none."""

    name, onnx, roles, weighted = "conv_transpose", "ConvTranspose", ("weight", "bias"), True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        (x,) = inputs
        weight, groups = array_of(graph, node, "weight"), count(node, "groups")
        fits = len(x) == 3 and weight.ndim == 4 and len(weight) == x[0] and x[0] % groups == 0 and all(weight.shape)
        need(fits, node.output, "a weight that does not fit its input", (weight.shape, x))
        channels = weight.shape[1] * groups
        check_vector(graph, node, "bias", channels)
        stride, padding, more = (pair(node, name, least=0) for name in ("stride", "padding", "output_padding"))
        dilation = pair(node, "dilation", least=1)
        need(min(stride) > 0, node.output, "a stride of 0", stride)
        fits = all(each < max(step, wide) for each, step, wide in zip(more, stride, dilation, strict=True))
        need(fits, node.output, "an output padding that is not smaller than its stride or dilation", more)
        sides = zip(x[1:], weight.shape[2:], stride, padding, dilation, more, strict=True)
        made = (
            (side - 1) * step - 2 * edge + wide * (size - 1) + extra + 1
            for side, size, step, edge, wide, extra in sides
        )
        return (channels, *made)

    def uses(self, node: Node, shapes: Any) -> int:
        return prod(shapes[node.inputs[0]][1:])

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_weighted(node)
        steps, wide = (prod(node.options[name]) for name in ("stride", "dilation"))
        made = work.shapes[node.output]
        work.add_whole(node, moved=prod(made) + made[0] * steps + wide)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        weight, bias, (x,) = float32(graph, node, "weight"), graph.array(node, "bias"), inputs
        (down, right), (tall, wide) = node.options["stride"], node.options["dilation"]
        (top, left), (_, more) = node.options["padding"], node.options["output_padding"]
        channels, height, width = self.shape(graph, node, [x.shape[1:]])
        groups = int(node.options["groups"])
        span_y = (x.shape[2] - 1) * down + tall * (weight.shape[2] - 1) + 1
        span_x = (x.shape[3] - 1) * right + wide * (weight.shape[3] - 1) + 1
        made = np.zeros((len(x), channels, max(span_y, top + height), max(span_x, left + width) + more), np.float32)
        grouped = x.reshape(len(x), groups, -1, *x.shape[2:])
        own = weight.reshape(groups, -1, *weight.shape[1:])
        for ky, kx in np.ndindex(*weight.shape[2:]):
            part = np.einsum("ngcyx,gco->ngoyx", grouped, own[..., ky, kx], optimize=True)
            rows = slice(ky * tall, ky * tall + (x.shape[2] - 1) * down + 1, down)
            columns = slice(kx * wide, kx * wide + (x.shape[3] - 1) * right + 1, right)
            made[:, :, rows, columns] += part.reshape(len(x), channels, *x.shape[2:])
        result = made[:, :, top : top + height, left : left + width]
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    def lower(self, lowering: Lowering, node: Node) -> None:
        """As a convolution that computes each phase of rows and columns as channels of their own."""
        weight, groups = array_of(lowering.graph, node, "weight"), int(node.options["groups"])
        stride, padding, dilation = (pair(node, name, least=0) for name in ("stride", "padding", "dilation"))
        (channel, output, *taps), values = nonzero(weight)
        output = output + channel // (len(weight) // groups) * weight.shape[1]
        phases, distances, sides = [], [], []
        channels, *made = lowering.node_shapes[node.output]
        for tap, step, edge, wide, side in zip(taps, stride, padding, dilation, made, strict=True):
            distance, phase = np.divmod(tap.astype(np.int64) * wide - edge, step)
            phases.append(phase)
            distances.append(-distance)
            sides.append(-(-side // step))
        before = [max(0, -int(each.min(initial=0))) for each in distances]
        y, x = (each + edge for each, edge in zip(distances, before, strict=True))
        row = (output * stride[0] + phases[0]) * stride[1] + phases[1]
        rows = channels * prod(stride)
        bias = lowering.graph.array(node, "bias")
        each_bias = np.zeros(rows) if bias is None else np.repeat(bias.astype(np.float64), prod(stride))
        name = f"{node.output} phases of outputs"
        entries = Entries(row.astype(np.int32), channel, y.astype(np.int32), x.astype(np.int32), values)
        layer = Layer("conv", lowering.same[node.inputs[0]], name, np.arange(rows), entries, each_bias)
        lowering.append(replace(layer, padding=(before[0], before[1])))
        lowering.shapes[name] = (rows, sides[0], sides[1])
        view = View.whole(name, (channels, *stride, *sides)).permuted((0, 3, 1, 4, 2))
        places = view.indices().reshape(channels, sides[0] * stride[0], sides[1] * stride[1])
        lowering.gathered(node, name, places[:, : made[0], : made[1]])

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        more = {"output_padding": list(node.options["output_padding"]), "group": node.options["groups"]}
        return {**window_attributes(node), "dilations": list(node.options["dilation"]), **more}


class Resampling(Operation):
    """Sums over rows and columns with fixed weights, the same for all channels of (C, H, W)."""

    passes = Channels.SAME

    def count_work(self, work: WorkCounter, node: Node) -> None:
        before, after = work.shapes[node.inputs[0]], work.shapes[node.output]
        taps = prod(self._most_taps(node, before, after))
        work.add_whole(node, products=prod(after) * taps, moved=prod(after[1:]) * taps)

    def _most_taps(self, node: Node, before: Shape, after: Shape) -> tuple[int, int]:
        raise NotImplementedError

    def matrices(self, node: Node, before: Shape, after: Shape) -> tuple[Array, Array]:
        """The weights of rows (rows after, rows before) and of columns."""
        raise NotImplementedError

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        before = inputs[0].shape[1:]
        rows, columns = self.matrices(node, before, self.shape(graph, node, [before]))
        return np.einsum("ncyx,ay,bx->ncab", inputs[0], rows, columns, optimize=True).astype(np.float32)

    def lower(self, lowering: Lowering, node: Node) -> None:
        name, shape = node.inputs[0], lowering.node_shapes[node.output]
        before = lowering.node_shapes[name]
        rows, columns = (_sparse(each) for each in self.matrices(node, before, shape))
        position = (rows[0][:, None] * shape[2] + columns[0]).reshape(-1)
        source = (rows[1][:, None] * before[2] + columns[1]).reshape(-1)
        weight = (rows[2][:, None] * columns[2]).reshape(-1)
        order = np.lexsort((source, position))
        step = ResampleStep(position[order], source[order], weight[order])
        lowering.emit_step(node, step, lowering.same[name], (shape[0], shape[1], shape[2]))


def _sparse(matrix: Array) -> tuple[Array, Array, Array]:
    row, column = np.nonzero(matrix)
    return row, column, matrix[row, column]


def sizes_after(node: Node, x: Shape) -> Shape:
    """The shape with the height and width that the option `size` says."""
    need(len(x) == 3, node.output, "an input of a wrong shape", x)
    size = pair(node, "size", least=1)
    need(x[0] * prod(size) <= MOST_OF_A_VALUE, node.output, "too large a size", size)
    need(max(size) <= MAX_SIDE and max(x[1:]) <= MAX_SIDE, node.output, "too long sides", (x, size))
    return (x[0], *size)


MAX_SIDE = 4096  # of an image that is resized: its weights are made as a matrix of both sides


class Resize(Resampling):
    """An image (C, H, W) of another `size`, by `mode` nearest or bilinear.

    Options: `scale`, by which a place is divided in the nearest mode and in the bilinear one without
    `align_corners`.
    """

    name, onnx = "resize", "Resize"

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        made = sizes_after(node, inputs[0])
        need(node.options.get("mode") in MODES, node.output, "no mode nearest or bilinear", node.options.get("mode"))
        corners, scale = node.options.get("align_corners"), node.options.get("scale")
        need(corners in (0, 1), node.output, "an `align_corners` that is not 0 or 1", corners)
        numbers = scale if isinstance(scale, tuple) else ()
        fits = len(numbers) == 2 and all(isinstance(each, float) and 1e-4 <= each <= 1e4 for each in numbers)
        need(fits, node.output, "a scale that is no pair of numbers", scale)
        sides = zip(inputs[0][1:], made[1:], numbers, strict=True)
        fits = all(abs(floor(before * by) - after) <= 1 for before, after, by in sides)
        need(fits, node.output, "a scale that does not give its size", (scale, made))
        return made

    def _most_taps(self, node: Node, before: Shape, after: Shape) -> tuple[int, int]:
        return (1, 1) if node.options["mode"] == "nearest" else (2, 2)

    def matrices(self, node: Node, before: Shape, after: Shape) -> tuple[Array, Array]:
        sides = zip(before[1:], after[1:], node.options["scale"], strict=True)
        first, second = (self._weights(node, old, new, scale) for old, new, scale in sides)
        return first, second

    def _weights(self, node: Node, old: int, new: int, scale: float) -> Array:
        place, made = np.arange(new), np.zeros((new, old), np.float64)
        step = np.float32(1 / scale)
        if node.options["mode"] == "nearest":
            made[place, np.minimum(np.floor(place.astype(np.float32) * step).astype(int), old - 1)] = 1
            return made
        if node.options["align_corners"]:
            at = place * ((old - 1) / max(new - 1, 1))
        else:
            at = np.maximum((place + 0.5) / scale - 0.5, 0)
        low = np.minimum(np.floor(at).astype(int), old - 1)
        share = np.where(low < old - 1, at - low, 0.0)
        np.add.at(made, (place, low), 1 - share)
        np.add.at(made, (place, np.minimum(low + 1, old - 1)), share)
        return made

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        sides = zip(node.options["size"], shape[1:], node.options["scale"], strict=True)
        return {"scales": np.array([1, 1, *(_scale(*side) for side in sides)], np.float32)}

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        nearest, corners = node.options["mode"] == "nearest", node.options["align_corners"]
        places = "asymmetric" if nearest else "align_corners" if corners else "half_pixel"
        how = {"mode": "nearest" if nearest else "linear", "coordinate_transformation_mode": places}
        return [OnnxCall("Resize", [inputs[0], "", inputs[1]], output, {**how, "nearest_mode": "floor"})]


def _scale(new: int, old: int, scale: float) -> Any:
    """A scale in single precision of which a side becomes as long as it should be."""
    single = np.float32(scale)
    return single if floor(single * old) == new else np.nextafter(np.float32(new / old), np.float32(np.inf))


class AdaptivePool(Resampling):
    """Averages of (C, H, W) over windows that make an image of `size`."""

    name, onnx = "adaptive_pool", "MatMul"

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        return sizes_after(node, inputs[0])

    def _most_taps(self, node: Node, before: Shape, after: Shape) -> tuple[int, int]:
        down, right = (-(-old // new) + 1 for old, new in zip(before[1:], after[1:], strict=True))
        return down, right

    def matrices(self, node: Node, before: Shape, after: Shape) -> tuple[Array, Array]:
        rows, columns = (_averages(old, new) for old, new in zip(before[1:], after[1:], strict=True))
        return rows, columns

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        rows, columns = self.matrices(node, shape, (shape[0], *node.options["size"]))
        return {"rows": rows.astype(np.float32), "columns": columns.T.astype(np.float32)}

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        half = f"{output} rows"
        return [OnnxCall("MatMul", [inputs[1], inputs[0]], half), OnnxCall("MatMul", [half, inputs[2]], output)]


def _averages(old: int, new: int) -> Array:
    """
    >>> _averages(3, 2).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """
    made = np.zeros((new, old))
    for place in range(new):
        first, end = place * old // new, -(-(place + 1) * old // new)
        made[place, first:end] = 1 / (end - first)
    return made

"""LSTM and GRU: one layer in one direction over a sequence (T, features)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from hypersparse_runtime.functions import sigmoid
from hypersparse_runtime.graph import Graph, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.base import Channels, OnnxCall, Operation, array_of, check_vector
from hypersparse_runtime.operations.layers import of_positions
from hypersparse_runtime.sparse_layers import Array, Layer
from hypersparse_runtime.value_steps.sums import GruStep, LstmStep, RecurrentStep
from hypersparse_runtime.views import View


class Recurrent(Operation):
    """What both share: `weight_ih` (gates H, I), `weight_hh` (gates H, H), biases or none; `reverse` 0 or 1."""

    roles, takes_views = ("weight_ih", "weight_hh", "bias_ih", "bias_hh"), True
    passes = Channels.ALL
    step: ClassVar[type[RecurrentStep]]

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        into, hidden = (array_of(graph, node, role) for role in self.roles[:2])
        (x,) = inputs
        fits = hidden.ndim == 2 and hidden.shape[0] == self.step.gates * hidden.shape[1]
        fits = fits and len(x) == 2 and into.shape == (len(hidden), x[1])
        need(fits, node.output, "weights that do not fit its input", (into.shape, hidden.shape, x))
        for role in self.roles[2:]:
            check_vector(graph, node, role, len(hidden))
        need(node.options.get("reverse") in (0, 1), node.output, "a `reverse` that is not 0 or 1", node.options)
        return (x[0], hidden.shape[1])

    def count_work(self, work: WorkCounter, node: Node) -> None:
        length = work.shapes[node.inputs[0]][0]
        kept = 0
        for role in self.roles[:2]:
            kept += work.kept_of(node.tensors[role])
        work.add_whole(node, products=length * kept, moved=prod(work.shapes[node.inputs[0]]) + kept * 8)
        work.work.weights += sum(work.graph.tensors[node.tensors[role]].size for role in self.roles[:2])

    def _biases(self, graph: Graph, node: Node) -> tuple[Array, Array]:
        length = len(array_of(graph, node, "weight_hh"))
        into, hidden = (graph.array(node, role) for role in self.roles[2:])
        none = np.zeros(length)
        return (none if into is None else into.astype(np.float64)), (none if hidden is None else hidden.astype(float))

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        (x,) = inputs
        into, hidden = (array_of(graph, node, role).astype(np.float64) for role in self.roles[:2])
        bias, hidden_bias = self._biases(graph, node)
        sums = x.astype(np.float64) @ into.T + bias
        size = hidden.shape[1]
        state = np.zeros((len(x), size)), np.zeros((len(x), size))
        made = np.zeros((len(x), x.shape[1], size), np.float32)
        times = range(x.shape[1])
        for time in reversed(times) if node.options["reverse"] else times:
            state = self._step(sums[:, time], state[0] @ hidden.T + hidden_bias, *state)
            made[:, time] = state[0]
        return made

    def _step(self, sums: Array, hidden: Array, before: Array, cell: Array) -> tuple[Array, Array]:
        raise NotImplementedError

    def lower(self, lowering: Lowering, node: Node) -> None:
        view = lowering.planes_last(node.inputs[0], groups=False)
        is_row = lowering.shapes[view.value][1:] == (1, view.shape[0])  # as the gates are
        if not is_row or view.merged()[0] not in ((), ((view.shape[0], 1),)):
            value = lowering.arranged(view.permuted((1, 0)), (view.shape[1], 1, view.shape[0]))
            view = View.whole(value, (view.shape[1], view.shape[0])).permuted((1, 0))
        gates, length = f"{node.output} gates", view.shape[0]
        into, hidden = (array_of(lowering.graph, node, role) for role in self.roles[:2])
        rows, size = hidden.shape
        bias, hidden_bias = self._biases(lowering.graph, node)
        own = np.zeros(0)
        if self.step.biased:  # the bias of the last gate's hidden sum, which is multiplied before it is added
            own, hidden_bias = hidden_bias[-size:], np.concatenate([hidden_bias[:-size], np.zeros(size)])
        lowering.append(Layer("conv", view.value, gates, np.arange(rows), of_positions(into), bias + hidden_bias))
        lowering.shapes[gates] = (rows, 1, length)
        step = self.step(of_positions(hidden), own, bool(node.options["reverse"]))
        seen = View.whole(node.output, (size, length)).permuted((1, 0))
        lowering.emit_step(node, step, gates, (size, 1, length), seen)

    order: ClassVar[tuple[int, ...]]  # of the gates in ONNX
    in_onnx = False

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        into, hidden = (self._ordered(array_of(graph, node, role)) for role in self.roles[:2])
        biases = [self._ordered(each) for each in self._biases(graph, node)]
        arrays = {"into": into[None], "hidden": hidden[None], "biases": np.concatenate(biases)[None]}
        return {**{name: array.astype(np.float32) for name, array in arrays.items()}, "axis": np.array([1])}

    def _ordered(self, array: Array) -> Array:
        parts = np.split(array, self.step.gates)
        return np.concatenate([parts[place] for place in self.order])

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"direction": "reverse" if node.options["reverse"] else "forward"}

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        """ONNX takes (T, batch, features) and gates in another order."""
        how = {**self.onnx_attributes(node), "hidden_size": array_of(graph, node, "weight_hh").shape[1]}
        return [
            OnnxCall("Transpose", inputs[:1], f"{output} in", {"perm": [1, 0, 2]}),
            OnnxCall(self.onnx, [f"{output} in", *inputs[1:4]], f"{output} all", how),
            OnnxCall("Squeeze", [f"{output} all", inputs[4]], f"{output} one"),
            OnnxCall("Transpose", [f"{output} one"], output, {"perm": [1, 0, 2]}),
        ]


class Lstm(Recurrent):
    """An LSTM over a sequence (T, I), which gives its hidden states (T, H)."""

    name, onnx, step = "lstm", "LSTM", LstmStep
    order = (0, 3, 1, 2)

    def _step(self, sums: Array, hidden: Array, before: Array, cell: Array) -> tuple[Array, Array]:
        take, forget, new, show = np.split(sums + hidden, 4, axis=1)
        cell = sigmoid(forget) * cell + sigmoid(take) * np.tanh(new)
        return sigmoid(show) * np.tanh(cell), cell


class Gru(Recurrent):
    """A GRU over a sequence (T, I), which gives its hidden states (T, H)."""

    name, onnx, step = "gru", "GRU", GruStep
    order = (1, 0, 2)

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {**super().onnx_attributes(node), "linear_before_reset": 1}

    def _step(self, sums: Array, hidden: Array, before: Array, cell: Array) -> tuple[Array, Array]:
        (reset, update, new), (reset_h, update_h, new_h) = np.split(sums, 3, axis=1), np.split(hidden, 3, axis=1)
        update = sigmoid(update + update_h)
        new = np.tanh(new + sigmoid(reset + reset_h) * new_h)
        return (1 - update) * new + update * before, cell

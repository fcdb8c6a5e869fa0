// LSTM and GRU: one layer in one direction over a sequence (T, features).

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { Entries } from "./layers.js";
import { arrayOf, biasOf, channelsOf, eachNonzero } from "./operands.js";
import { View } from "./views.js";

/** The weights of a role as entries of one tap, a row for each unit of each gate. */
function entriesOf(lowering, node, role) {
  const weight = arrayOf(lowering.graph, node, role);
  return Entries.build(lowering.budget, weight.values.length, (add) =>
    eachNonzero(weight, (at, value) => add(Math.floor(at / weight.shape[1]), at % weight.shape[1], 0, 0, value)),
  );
}

const recurrent = (kind, gates) => ({
  options: ["reverse"],
  inputs: 1,
  takesViews: true,
  products: (graph, node, [length]) =>
    length * ["weight_ih", "weight_hh"].reduce((all, role) => all + arrayOf(graph, node, role).values.length, 0),
  shape(graph, node, [x]) {
    const [into, hidden] = ["weight_ih", "weight_hh"].map((role) => arrayOf(graph, node, role).shape);
    let fits = x.length === 2 && hidden.length === 2 && hidden[0] === gates * hidden[1];
    fits &&= String(into) === String([hidden[0], x[1]]);
    need(fits, node, "weights that do not fit its input", `${into}; ${hidden}; ${x}`);
    for (const role of ["bias_ih", "bias_hh"]) biasOf(graph, node, hidden[0], role);
    need([0, 1].includes(own(node.options, "reverse")), node, "a `reverse` that is not 0 or 1", node.options.reverse);
    return [x[0], hidden[1]];
  },
  lower(lowering, node) {
    const [length, size] = lowering.shapes.get(node.output);
    let view = lowering.planesLast(node.inputs[0], false);
    const isRow = String(lowering.laid.get(view.value).slice(1)) === String([1, length]);
    if (!isRow || !["", `${length},1`].includes(String(view.merged()[0]))) {
      const features = view.shape[1];
      const value = lowering.arranged(view.permuted([1, 0]), [features, 1, length]);
      view = View.whole(value, [features, length]).permuted([1, 0]);
    }
    const rows = gates * size;
    const [into, hidden] = ["bias_ih", "bias_hh"].map((role) => biasOf(lowering.graph, node, rows, role));
    const own = kind === "gru" ? hidden.slice(-size) : new Float64Array(0);
    const bias = into.map((each, row) => each + (kind === "gru" && row >= rows - size ? 0 : hidden[row]));
    const name = node.tensors.get("weight_ih");
    const output = `${node.output} gates`;
    const window = { stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
    const entries = entriesOf(lowering, node, "weight_ih");
    const layer = { kind: "conv", name, input: view.value, output, rows: channelsOf(rows), entries, bias, ...window };
    lowering.append(layer);
    lowering.addSides(output, [rows, 1, length], "conv");
    const work = { entries: entriesOf(lowering, node, "weight_hh"), bias: own, reverse: node.options.reverse };
    const seen = View.whole(node.output, [size, length]).permuted([1, 0]);
    lowering.budget.spend(product([rows, length]));
    lowering.emitWhole(node, kind, output, work, [size, 1, length], seen);
  },
});

export const lstm = recurrent("lstm", 4);
export const gru = recurrent("gru", 3);

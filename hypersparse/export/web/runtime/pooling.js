// Pooling over windows and over whole images.

import { need, product } from "./checks.js";
import { Entries } from "./layers.js";
import { channelsOf, isImage, pair, slid } from "./operands.js";

const pool = {
  options: ["kernel", "stride", "padding"],
  inputs: 1,
  products: (graph, node, shape) => product(shape) * product(pair(node, "kernel", 1)),
  shape(graph, node, [x]) {
    need(isImage(x), node, "an input of a wrong shape", x);
    const [kernel, padding] = [pair(node, "kernel", 1), pair(node, "padding", 0)];
    need(
      padding.every((edge, axis) => 2 * edge <= kernel[axis]),
      node,
      "a padding of more than half its kernel",
      padding,
    );
    return [x[0], ...slid(node, x, kernel)];
  },
};

function lowerWhole(lowering, node, kind, rest = {}) {
  const value = lowering.same.get(node.inputs[0]);
  const rows = channelsOf(lowering.laid.get(value)[0]);
  lowering.emit(node, { kind, name: node.op, input: value, output: node.output, rows, ...rest });
}

export const maxPool = {
  ...pool,
  lower(lowering, node) {
    const [kernel, stride, padding] = ["kernel", "stride", "padding"].map((name) => pair(node, name, 0));
    lowerWhole(lowering, node, "max_pool", { kernel, stride, padding });
  },
};

export const avgPool = {
  ...pool,
  lower(lowering, node) {
    const [kernel, padding, stride] = ["kernel", "padding", "stride"].map((name) => pair(node, name, 0));
    const value = lowering.same.get(node.inputs[0]);
    const [channels, ...sides] = lowering.laid.get(value);
    if (String(kernel) === String(sides) && !padding[0] && !padding[1]) {
      lowerWhole(lowering, node, "mean");
      return;
    }
    const size = product(kernel);
    const entries = Entries.build(lowering.budget, channels * size, (addEntry) => {
      for (let at = 0; at < channels * size; at += 1) {
        const channel = Math.floor(at / size);
        addEntry(channel, channel, Math.floor(at / kernel[1]) % kernel[0], at % kernel[1], 1 / size);
      }
    });
    const bias = new Float64Array(channels);
    lowerWhole(lowering, node, "conv", { entries, bias, stride, padding, dilation: [1, 1] });
  },
};

export const mean = {
  inputs: 1,
  shape(graph, node, [x]) {
    need(isImage(x), node, "an input of a wrong shape", x);
    return [x[0]];
  },
  lower: (lowering, node) => lowerWhole(lowering, node, "mean"),
};

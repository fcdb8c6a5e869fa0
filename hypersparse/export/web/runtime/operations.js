// Every operation that this runtime knows: its shape, checks, and the layers it becomes.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { Entries } from "./layers.js";
import { arrayOf, channelsOf, dense, eachNonzero, isImage, pair, slid, vectorOf } from "./operands.js";

const MAX_BOUND = 3.4028234663852886e38; // of a `clip`
const MAX_JOINED = 2 ** 20; // inputs times channels of a concatenation that is written in place

const sameShape = (graph, node, [shape]) => shape;
function weightProducts(graph, node, shape) {
  return arrayOf(graph, node, "weight").values.length * product(shape.slice(1));
}

function weightedLayer(lowering, node, kind, entries) {
  const rows = lowering.shapes.get(node.output)[0];
  const bias = node.tensors.has("bias") ? vectorOf(lowering.graph, node, "bias", rows) : new Float64Array(rows);
  const name = node.tensors.get("weight").replace(/\.weight$/, "");
  return {
    kind,
    name,
    input: lowering.same.get(node.inputs[0]),
    output: node.output,
    rows: channelsOf(rows),
    entries,
    bias: bias.slice(),
  };
}

const conv = {
  options: ["groups", "stride", "padding", "dilation"],
  inputs: 1,
  products: weightProducts,
  shape(graph, node, [x]) {
    const { shape } = arrayOf(graph, node, "weight");
    const groups = own(node.options, "groups");
    need(Number.isInteger(groups) && groups > 0, node, "wrong groups", groups);
    const fits = isImage(x) && shape.length === 4 && shape[1] * groups === x[0] && shape[0] % groups === 0;
    need(fits && shape.every((side) => side > 0), node, "a weight that does not fit its input", `${shape}; ${x}`);
    const dilation = pair(node, "dilation", 1);
    return [
      shape[0],
      ...slid(
        node,
        x,
        dilation.map((step, axis) => step * (shape[axis + 2] - 1) + 1),
      ),
    ];
  },
  lower(lowering, node) {
    const weight = arrayOf(lowering.graph, node, "weight");
    const [rows, columns, height, width] = weight.shape;
    const perGroup = rows / own(node.options, "groups");
    const entries = Entries.build(lowering.budget, weight.values.length, (add) =>
      eachNonzero(weight, (at, value) => {
        const channel = Math.floor(at / (height * width));
        const row = Math.floor(channel / columns);
        const first = Math.floor(row / perGroup) * columns;
        add(row, first + (channel % columns), Math.floor(at / width) % height, at % width, value);
      }),
    );
    const window = {
      stride: pair(node, "stride", 1),
      padding: pair(node, "padding", 0),
      dilation: pair(node, "dilation", 1),
    };
    lowering.emit(node, { ...weightedLayer(lowering, node, "conv", entries), ...window });
  },
};

const linear = {
  inputs: 1,
  products: weightProducts,
  shape(graph, node, [x]) {
    const { shape } = arrayOf(graph, node, "weight");
    need(
      shape.length === 2 && x.length === 1 && shape[1] === x[0],
      node,
      "a weight that does not fit its input",
      `${shape}; ${x}`,
    );
    return [shape[0]];
  },
  lower(lowering, node) {
    const weight = arrayOf(lowering.graph, node, "weight");
    const [, height, width] = lowering.laid.get(lowering.same.get(node.inputs[0]));
    const columns = weight.shape[1];
    const entries = Entries.build(lowering.budget, weight.values.length, (add) =>
      eachNonzero(weight, (at, value) => {
        const feature = at % columns;
        const [channel, y] = [Math.floor(feature / (height * width)), Math.floor(feature / width) % height];
        add(Math.floor(at / columns), channel, y, feature % width, value);
      }),
    );
    lowering.emit(node, weightedLayer(lowering, node, "dot", entries));
  },
};

const batchNorm = {
  options: ["epsilon"],
  inputs: 1,
  shape(graph, node, [x]) {
    need([1, 3].includes(x.length), node, "an input of a wrong shape", x);
    for (const role of ["weight", "bias", "mean", "variance"]) vectorOf(graph, node, role, x[0]);
    const epsilon = own(node.options, "epsilon");
    need(typeof epsilon === "number" && epsilon >= 0, node, "a wrong epsilon", epsilon);
    return x;
  },
  lower(lowering, node) {
    const length = lowering.shapes.get(node.output)[0];
    const [weight, bias, mean, variance] = ["weight", "bias", "mean", "variance"].map((role) =>
      vectorOf(lowering.graph, node, role, length),
    );
    const scale = weight.map((each, place) => each / Math.sqrt(variance[place] + own(node.options, "epsilon")));
    const folded = (layer) => ({
      ...layer,
      entries: layer.entries.scaled(scale),
      bias: layer.bias.map((each, row) => (each - mean[row]) * scale[row] + bias[row]),
      plane: layer.plane?.map((each, at) => each * scale[Math.floor(at / (layer.plane.length / length))]),
    });
    lowering.change(node, folded, false);
  },
};

const relu = {
  inputs: 1,
  shape: sameShape,
  lower: (lowering, node) => lowering.change(node, (layer) => ({ ...layer, relu: true }), true),
};

function boundsOf(node) {
  const given = ["low", "high"].map((name) => own(node.options, name));
  const known = given.filter((bound) => bound !== undefined);
  const fits = known.length && known.every((bound) => typeof bound === "number" && Math.abs(bound) <= MAX_BOUND);
  need(
    fits,
    node,
    "no bounds `low`, `high` or both, which are finite numbers of float32",
    JSON.stringify(node.options),
  );
  return [given[0] ?? -Infinity, given[1] ?? Infinity];
}

const clip = {
  options: ["low", "high"],
  inputs: 1,
  shape(graph, node, [x]) {
    const [low, high] = boundsOf(node);
    need(low <= high, node, "bounds of which the lower is the larger", [low, high]);
    return x;
  },
  lower: (lowering, node) => lowering.change(node, (layer) => ({ ...layer, clip: boundsOf(node) }), true),
};

const add = {
  inputs: 2,
  shape(graph, node, [first, second]) {
    need(String(first) === String(second), node, "inputs of two shapes", `${first}; ${second}`);
    return first;
  },
  lower(lowering, node) {
    const [first, second] = node.inputs;
    const taken = lowering.canTake(second, false) || !lowering.canTake(first, false) ? 1 : 0;
    const layer = lowering.open(node, taken, false);
    lowering.emit(node, { ...layer, output: node.output, residual: lowering.materialized(node.inputs[1 - taken]) });
  },
};

const plane = {
  inputs: 1,
  shape(graph, node, [x]) {
    const { shape } = arrayOf(graph, node, "value");
    need(String(shape) === String(x), node, "a plane of another shape than its input", `${shape}; ${x}`);
    return x;
  },
  lower(lowering, node) {
    const layer = lowering.open(node, 0, true);
    const added = dense(arrayOf(lowering.graph, node, "value"));
    lowering.budget.spend(added.length);
    const together = layer.plane ? layer.plane.map((each, place) => each + added[place]) : added;
    lowering.emit(node, { ...layer, output: node.output, plane: together });
  },
};

const concat = {
  options: ["axis"],
  inputs: null,
  shape(graph, node, inputs) {
    const [first] = inputs;
    const fits = inputs.every(
      (shape) => [1, 3].includes(shape.length) && String(shape.slice(1)) === String(first.slice(1)),
    );
    need(fits, node, "inputs of other heights and widths", inputs.slice(0, 8).join("; "));
    need(!own(node.options, "axis"), node, "an axis other than that of channels", own(node.options, "axis"));
    return [inputs.reduce((sum, shape) => sum + shape[0], 0), ...first.slice(1)];
  },
  lower(lowering, node) {
    const channels = lowering.shapes.get(node.output)[0];
    const inPlace = node.inputs.length * channels <= MAX_JOINED;
    let first = 0;
    for (const name of node.inputs) {
      const start = first;
      if (inPlace && lowering.isMovable(name)) {
        lowering.rename(name, (layer) => lowering.moved(layer, node.output, start, channels));
      } else {
        lowering.append(lowering.moved(lowering.copy(name, node.output), node.output, start, channels));
      }
      first += lowering.shapes.get(name)[0];
    }
    if (inPlace) lowering.joined.add(node.output);
    lowering.addValue(node);
  },
};

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

const maxPool = {
  ...pool,
  lower(lowering, node) {
    const [kernel, stride, padding] = ["kernel", "stride", "padding"].map((name) => pair(node, name, 0));
    lowerWhole(lowering, node, "max_pool", { kernel, stride, padding });
  },
};

const avgPool = {
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

const mean = {
  inputs: 1,
  shape(graph, node, [x]) {
    need(isImage(x), node, "an input of a wrong shape", x);
    return [x[0]];
  },
  lower: (lowering, node) => lowerWhole(lowering, node, "mean"),
};

const flatten = {
  inputs: 1,
  shape: (graph, node, [x]) => [product(x)],
  lower(lowering, node) {
    const [name] = node.inputs;
    lowering.same.set(node.output, lowering.same.get(name));
    lowering.readers.set(name, lowering.readersOf(name) + lowering.readersOf(node.output)); // who reads the one reads the other
  },
};

const softmaxOf = (kind) => ({
  inputs: 1,
  lastOnly: true,
  shape(graph, node, [x]) {
    need(x.length === 1, node, "an input that is no vector", x);
    return x;
  },
  lower(lowering, node) {
    const rows = channelsOf(lowering.shapes.get(node.output)[0]);
    lowering.emit(node, {
      kind,
      name: node.op,
      input: lowering.materialized(node.inputs[0]),
      output: node.output,
      rows,
    });
  },
});

export const OPERATIONS = {
  conv,
  linear,
  batch_norm: batchNorm,
  relu,
  clip,
  add,
  concat,
  plane,
  max_pool: maxPool,
  avg_pool: avgPool,
  mean,
  flatten,
  softmax: softmaxOf("softmax"),
  log_softmax: softmaxOf("log_softmax"),
};

// Every operation that this runtime knows: its shape, checks, and the layers it becomes.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { arithmetic, elementwise, lowerArithmetic } from "./elementwise.js";
import { INPUT } from "./file.js";
import { Entries } from "./layers.js";
import {
  arrayOf,
  biasOf,
  channelsOf,
  dense,
  eachNonzero,
  isImage,
  layerName,
  pair,
  sameShape,
  slid,
  vectorOf,
  wholeNumber,
} from "./operands.js";
import { gru, lstm } from "./recurrent.js";
import { adaptivePool, convTranspose, resize } from "./resampling.js";
import { constant, embedding, expand, permute, reshape, slice } from "./shaping.js";
import { groupNorm, layerNorm, matmul, reduce, softmaxLast } from "./tokens.js";
import { View, sidesOf } from "./views.js";

const MAX_BOUND = 3.4028234663852886e38; // of a `clip`
const MAX_JOINED = 2 ** 20; // inputs times channels of a concatenation that is written in place

function weightProducts(graph, node, shape) {
  return arrayOf(graph, node, "weight").values.length * product(shape.slice(1));
}

function weightedLayer(lowering, node, kind, entries, rows = lowering.shapes.get(node.output)[0]) {
  return {
    kind,
    name: layerName(node),
    input: lowering.same.get(node.inputs[0]),
    output: node.output,
    rows: channelsOf(rows),
    entries,
    bias: biasOf(lowering.graph, node, rows),
  };
}

/** How many products each weight is in, for one image. */
const uses = (node, shapes) => product(shapes.get(node.output).slice(1));
const POINT = { stride: [1, 1], padding: [0, 0], dilation: [1, 1] }; // of a convolution of one tap

/** The shape of a weight; that of a convolution over a sequence as one over an image of one row. */
const kernelsOf = ({ shape }) => (shape.length === 3 ? [shape[0], shape[1], 1, shape[2]] : shape);

const conv = {
  options: ["groups", "stride", "padding", "dilation"],
  inputs: 1,
  uses,
  products: weightProducts,
  shape(graph, node, [x]) {
    const shape = kernelsOf(arrayOf(graph, node, "weight"));
    const groups = wholeNumber(node, "groups", 1);
    const fits = isImage(x) && shape.length === 4 && shape[1] * groups === x[0] && shape[0] % groups === 0;
    need(fits && shape.every((side) => side > 0), node, "a weight that does not fit its input", `${shape}; ${x}`);
    biasOf(graph, node, shape[0]);
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
    const [rows, columns, height, width] = kernelsOf(weight);
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

/** The features that a linear layer makes of the last axis. */
function featuresOf(graph, node, x) {
  const { shape } = arrayOf(graph, node, "weight");
  const fits = shape.length === 2 && shape[1] === x[x.length - 1];
  need(fits, node, "a weight that does not fit its input", `${shape}; ${x}`);
  biasOf(graph, node, shape[0]);
  return shape[0];
}

const linear = {
  inputs: 1,
  uses,
  products: weightProducts,
  shape(graph, node, [x]) {
    need(x.length === 1, node, "an input that is no vector", x);
    return [featuresOf(graph, node, x)];
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

const tokenLinear = {
  inputs: 1,
  takesViews: true,
  uses: (node, shapes) => product(shapes.get(node.output).slice(0, -1)),
  products: (graph, node, shape) => arrayOf(graph, node, "weight").values.length * product(shape.slice(0, -1)),
  shape(graph, node, [x]) {
    need(x.length > 1, node, "an input of one axis", x);
    return [...x.slice(0, -1), featuresOf(graph, node, x)];
  },

  /** Features are channels and tokens are positions, so that this is a convolution of one tap. */
  lower(lowering, node) {
    const weight = arrayOf(lowering.graph, node, "weight");
    const [rows, columns] = weight.shape;
    const view = lowering.planesLast(node.inputs[0], false);
    const [, ...sides] = lowering.laid.get(view.value);
    const entries = Entries.build(lowering.budget, weight.values.length, (add) =>
      eachNonzero(weight, (at, value) => add(Math.floor(at / columns), at % columns, 0, 0, value)),
    );
    const kind = lowering.vectors.has(view.value) ? "dot" : "conv";
    const layer = { ...weightedLayer(lowering, node, kind, entries, rows), ...POINT, input: view.value };
    const axes = [...view.axes.slice(0, -1), [[rows, product(sides)]]];
    lowering.emitView(node, layer, [rows, ...sides], new View(node.output, axes));
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
  takesViews: true,
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
  takesViews: true,
  shape(graph, node, [x]) {
    const [low, high] = boundsOf(node);
    need(low <= high, node, "bounds of which the lower is the larger", [low, high]);
    return x;
  },
  lower: (lowering, node) => lowering.change(node, (layer) => ({ ...layer, clip: boundsOf(node) }), true),
};

const add = {
  inputs: 2,
  takesViews: true,
  shape(graph, node, [first, second]) {
    need(String(first) === String(second), node, "inputs of two shapes", `${first}; ${second}`);
    return first;
  },
  lower(lowering, node) {
    const [first, second] = node.inputs;
    if (lowering.isLaid(first) || lowering.isLaid(second)) {
      if (lowering.addValues(node, first, second) || lowering.addValues(node, second, first)) return;
      lowerArithmetic(lowering, node, "add");
      return;
    }
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

const axisOf = (node) => (Object.hasOwn(node.options, "axis") ? wholeNumber(node, "axis", 0) : 0);

const concat = {
  options: ["axis"],
  inputs: null,
  takesViews: true,
  shape(graph, node, inputs) {
    const [[...shape], axis] = [inputs[0], axisOf(node)];
    need(axis < shape.length, node, "an axis that its inputs do not have", axis);
    const rest = (sides) => String(sides.map((side, place) => (place === axis ? 0 : side)));
    const fits = inputs.every((sides) => rest(sides) === rest(shape));
    need(fits, node, "inputs of other heights and widths", inputs.slice(0, 8).join("; "));
    shape[axis] = inputs.reduce((sum, sides) => sum + sides[axis], 0);
    return shape;
  },
  lower(lowering, node) {
    const isOfChannels = !axisOf(node) && [1, 3].includes(lowering.shapes.get(node.output).length);
    const isLaid = node.inputs.some((name) => lowering.isLaid(name));
    if (isOfChannels && !isLaid) joinChannels(lowering, node);
    else joinCopies(lowering, node);
  },
};

function joinChannels(lowering, node) {
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
}

/** Each input is copied to its places; features stay channels where those of the first value are. */
function joinCopies(lowering, node) {
  const [axis, shape] = [axisOf(node), lowering.shapes.get(node.output)];
  const order = shape.map((_, place) => place);
  const [last, rest] = [shape[shape.length - 1], shape.slice(0, -1)];
  const first = lowering.view(node.inputs.find((name) => !lowering.constants.has(name)) ?? node.inputs[0]);
  const plane = product(lowering.laid.get(first.value).slice(1));
  let [sides, seen] = [sidesOf(shape), View.whole(node.output, shape)];
  if (rest.length && axis < rest.length && String(first.merged().at(-1)) === String([[shape.at(-1), plane]])) {
    sides = [last, 1, product(rest)];
    seen = View.whole(node.output, [last, ...rest]).permuted([...order.slice(1), 0]);
  }
  let start = 0;
  for (const name of node.inputs) {
    const length = lowering.shapes.get(name)[axis];
    const constant = lowering.constants.get(name);
    const view = constant ? View.whole(INPUT, lowering.shapes.get(name)) : lowering.view(name);
    const [places, targets] = [lowering.indices(view), lowering.indices(seen.sliced(axis, start, length, 1))];
    lowering.emitWhole(node, "copy", view.value, { places, targets, constant }, sides, seen);
    start += length;
  }
}

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
  conv_transpose: convTranspose,
  linear,
  token_linear: tokenLinear,
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
  elementwise,
  arithmetic,
  reshape,
  permute,
  slice,
  expand,
  constant,
  embedding,
  layer_norm: layerNorm,
  group_norm: groupNorm,
  reduce,
  softmax_last: softmaxLast,
  matmul,
  resize,
  adaptive_pool: adaptivePool,
  lstm,
  gru,
};

// Every operation that this runtime knows: its shape, checks, and the layers it becomes.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { arithmetic, elementwise } from "./elementwise.js";
import { Entries } from "./layers.js";
import { add, concat, flatten, plane } from "./merging.js";
import {
  arrayOf,
  biasOf,
  channelsOf,
  eachNonzero,
  isImage,
  layerName,
  pair,
  sameShape,
  slid,
  vectorOf,
  wholeNumber,
} from "./operands.js";
import { avgPool, maxPool, mean } from "./pooling.js";
import { gru, lstm } from "./recurrent.js";
import { adaptivePool, convTranspose, resize } from "./resampling.js";
import { constant, embedding, expand, permute, reshape, slice } from "./shaping.js";
import { groupNorm, layerNorm, matmul, reduce, softmaxLast } from "./tokens.js";
import { View } from "./views.js";

const MAX_BOUND = 3.4028234663852886e38; // of a `clip`

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

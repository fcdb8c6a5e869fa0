// Operations that change height and width: transposed convolution, resizing, pooling to a size.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { Entries } from "./layers.js";
import { arrayOf, biasOf, channelsOf, eachNonzero, isImage, layerName, pair, wholeNumber } from "./operands.js";
import { View } from "./views.js";

const MOST_PHASES = 2 ** 19; // rows of a transposed convolution, each a phase of a channel
const MAX_SIDE = 4096; // of an image that is resized
const AXES = [0, 1];

export const convTranspose = {
  options: ["groups", "stride", "padding", "output_padding", "dilation"],
  inputs: 1,
  uses: (node, shapes) => product(shapes.get(node.inputs[0]).slice(1)),
  products: (graph, node, shape, [x]) => arrayOf(graph, node, "weight").values.length * product(x.slice(1)),
  shape(graph, node, [x]) {
    const { shape } = arrayOf(graph, node, "weight");
    const groups = wholeNumber(node, "groups", 1);
    const fits = isImage(x) && shape.length === 4 && shape[0] === x[0] && x[0] % groups === 0;
    need(fits && shape.every((side) => side > 0), node, "a weight that does not fit its input", `${shape}; ${x}`);
    const [stride, padding, more] = [
      pair(node, "stride", 1),
      pair(node, "padding", 0),
      pair(node, "output_padding", 0),
    ];
    const dilation = pair(node, "dilation", 1);
    const isLess = AXES.every((axis) => more[axis] < Math.max(stride[axis], dilation[axis]));
    need(isLess, node, "an output padding that is not smaller than its stride or dilation", more);
    const channels = shape[1] * groups;
    need(channels * product(stride) <= MOST_PHASES, node, "too large a stride", stride);
    biasOf(graph, node, channels);
    const made = (axis) =>
      (x[axis + 1] - 1) * stride[axis] - 2 * padding[axis] + dilation[axis] * (shape[axis + 2] - 1) + more[axis] + 1;
    return [channels, ...AXES.map(made)];
  },

  /** As a convolution that computes each phase of rows and columns as channels of their own. */
  lower(lowering, node) {
    const weight = arrayOf(lowering.graph, node, "weight");
    const [inputs, outputs, ...kernel] = weight.shape;
    const [stride, padding, dilation] = ["stride", "padding", "dilation"].map((name) => pair(node, name, 0));
    const perGroup = inputs / node.options.groups;
    const [channels, ...made] = lowering.shapes.get(node.output);
    const sides = AXES.map((axis) => Math.ceil(made[axis] / stride[axis]));
    const shifted = (tap, axis) => tap * dilation[axis] - padding[axis];
    const shift = (tap, axis) => Math.floor(shifted(tap, axis) / stride[axis]);
    const before = AXES.map((axis) => Math.max(0, shift(kernel[axis] - 1, axis)));
    const entries = Entries.build(lowering.budget, weight.values.length, (add) =>
      eachNonzero(weight, (at, value) => {
        const taps = [Math.floor(at / kernel[1]) % kernel[0], at % kernel[1]];
        const pairs = Math.floor(at / product(kernel));
        const channel = Math.floor(pairs / outputs);
        const output = (pairs % outputs) + Math.floor(channel / perGroup) * outputs;
        const [y, x] = AXES.map((axis) => before[axis] - shift(taps[axis], axis));
        const [top, left] = AXES.map((axis) => shifted(taps[axis], axis) - shift(taps[axis], axis) * stride[axis]);
        add((output * stride[0] + top) * stride[1] + left, channel, y, x, value);
      }),
    );
    const rows = channels * product(stride);
    const given = biasOf(lowering.graph, node, channels);
    const bias = Float64Array.from({ length: rows }, (_, row) => given[Math.floor(row / product(stride))]);
    const name = `${node.output} phases of outputs`;
    const window = { stride: [1, 1], padding: before, dilation: [1, 1] };
    const layer = { kind: "conv", name: layerName(node), rows: channelsOf(rows), entries, bias, ...window };
    lowering.append({ ...layer, input: lowering.same.get(node.inputs[0]), output: name });
    lowering.addSides(name, [rows, ...sides], "conv");
    const view = View.whole(name, [channels, ...stride, ...sides]).permuted([0, 3, 1, 4, 2]);
    const [all, width] = [lowering.indices(view), sides[1] * stride[1]];
    const places = new Int32Array(channels * product(made));
    const [plane, whole] = [product(made), sides[0] * stride[0] * width];
    for (let at = 0; at < places.length; at += 1) {
      const inside = at % plane;
      places[at] = all[Math.floor(at / plane) * whole + Math.floor(inside / made[1]) * width + (inside % made[1])];
    }
    lowering.gathered(node, name, places);
  },
};

/** Sums over rows and columns with fixed weights, the same for all channels; `weightsOf` gives those of one side. */
const resampling = (options, check, most, weightsOf) => ({
  options,
  inputs: 1,
  products: (graph, node, shape, [x]) =>
    product(shape) * AXES.reduce((all, axis) => all * most(node, x, shape, axis), 1),
  shape(graph, node, [x]) {
    need(isImage(x), node, "an input of a wrong shape", x);
    const size = pair(node, "size", 1);
    need(Math.max(...size, ...x.slice(1)) <= MAX_SIDE, node, "too long sides", `${x}; ${size}`);
    check(node, x, size);
    return [x[0], ...size];
  },
  lower(lowering, node) {
    const shape = lowering.shapes.get(node.output);
    const before = lowering.shapes.get(node.inputs[0]);
    const taps = AXES.reduce((all, axis) => all * most(node, before, shape, axis), 1);
    lowering.budget.spend(8 * taps * product(shape.slice(1)) + 4 * product(shape));
    const [rows, columns] = AXES.map((axis) => weightsOf(node, before[axis + 1], shape[axis + 1], axis));
    const starts = new Int32Array(shape[1] * shape[2] + 1);
    const [source, weight] = [[], []];
    rows.forEach((down, y) => {
      columns.forEach((right, x) => {
        for (const [row, share] of down) {
          for (const [column, part] of right) {
            source.push(row * before[2] + column);
            weight.push(share * part);
          }
        }
        starts[y * shape[2] + x + 1] = source.length;
      });
    });
    const work = { starts, source: Int32Array.from(source), weight: Float32Array.from(weight) };
    lowering.emitWhole(node, "resample", lowering.same.get(node.inputs[0]), work, shape);
  },
});

function checkResize(node, x, size) {
  const [mode, corners, scale] = ["mode", "align_corners", "scale"].map((name) => own(node.options, name));
  need(["nearest", "bilinear"].includes(mode), node, "no mode nearest or bilinear", mode);
  need([0, 1].includes(corners), node, "an `align_corners` that is not 0 or 1", corners);
  const numbers = Array.isArray(scale) ? scale : [];
  const fits = numbers.length === 2 && numbers.every((each) => typeof each === "number" && each >= 1e-4 && each <= 1e4);
  need(fits, node, "a scale that is no pair of numbers", scale);
  const isRight = AXES.every((axis) => Math.abs(Math.floor(x[axis + 1] * scale[axis]) - size[axis]) <= 1);
  need(isRight, node, "a scale that does not give its size", `${scale}; ${size}`);
}

/** For each row or column its sources, with their weights. */
function resized(node, old, side, axis) {
  const { mode, align_corners: corners, scale } = node.options;
  const step = Math.fround(1 / scale[axis]);
  return Array.from({ length: side }, (_, place) => {
    if (mode === "nearest") return [[Math.min(Math.floor(Math.fround(place * step)), old - 1), 1]];
    const at = corners ? place * ((old - 1) / Math.max(side - 1, 1)) : Math.max((place + 0.5) / scale[axis] - 0.5, 0);
    const low = Math.min(Math.floor(at), old - 1);
    return low < old - 1 ? [[low, 1 - (at - low)], [low + 1, at - low]].filter(([, share]) => share) : [[low, 1]]; // prettier-ignore
  });
}

export const resize = resampling(
  ["size", "mode", "align_corners", "scale"],
  checkResize,
  (node) => (node.options.mode === "nearest" ? 1 : 2),
  resized,
);

export const adaptivePool = resampling(
  ["size"],
  () => {},
  (node, before, after, axis) => Math.ceil(before[axis + 1] / after[axis + 1]) + 1,
  (node, old, side) =>
    Array.from({ length: side }, (_, place) => {
      const [first, end] = [Math.floor((place * old) / side), Math.ceil(((place + 1) * old) / side)];
      return Array.from({ length: end - first }, (_, more) => [first + more, 1 / (end - first)]);
    }),
);

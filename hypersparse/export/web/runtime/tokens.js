// Operations over the last axis, as Transformers have them: norms, products of two values, softmax, reductions.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { arrayOf, dense, sameShape, vectorOf, wholeNumber } from "./operands.js";
import { View } from "./views.js";

const MAX_SCALE = 1e6;
export const REDUCTIONS = ["mean", "sum", "max", "min"]; // in the order of kernel/kernel.h

const last = (shape) => shape[shape.length - 1];

function checkNorm(graph, node, length) {
  const epsilon = own(node.options, "epsilon");
  need(typeof epsilon === "number" && epsilon >= 0 && epsilon <= 1, node, "a wrong epsilon", epsilon);
  for (const role of ["weight", "bias"]) if (node.tensors.has(role)) vectorOf(graph, node, role, length);
}

function normOf(lowering, node, channels, length) {
  const [gain, shift] = ["weight", "bias"].map((role, place) =>
    node.tensors.has(role) ? dense(arrayOf(lowering.graph, node, role)) : new Float64Array(length).fill(1 - place),
  );
  return { channels, gain, shift, epsilon: node.options.epsilon };
}

export const layerNorm = {
  options: ["epsilon"],
  inputs: 1,
  takesViews: true,
  products: (graph, node, shape) => 4 * product(shape),
  shape(graph, node, [x]) {
    checkNorm(graph, node, last(x));
    return x;
  },
  lower(lowering, node) {
    const view = lowering.planesLast(node.inputs[0]);
    const [sides, length] = [lowering.laid.get(view.value), last(view.shape)];
    const work = normOf(lowering, node, length, length);
    lowering.emitWhole(node, "layer_norm", view.value, work, sides, view.of(node.output));
  },
};

export const groupNorm = {
  options: ["epsilon", "groups"],
  inputs: 1,
  products: (graph, node, shape) => 4 * product(shape),
  shape(graph, node, [x]) {
    checkNorm(graph, node, x[0]);
    need(x[0] % wholeNumber(node, "groups", 1) === 0, node, "groups that do not divide its channels", x);
    return x;
  },
  lower(lowering, node) {
    const value = lowering.materialized(node.inputs[0]);
    const sides = lowering.laid.get(value);
    const work = normOf(lowering, node, sides[0] / node.options.groups, sides[0]);
    lowering.emitWhole(node, "group_norm", value, work, sides);
  },
};

const several = (node, x) => need(x.length > 1, node, "an input of one axis", x);

export const reduce = {
  options: ["function"],
  inputs: 1,
  takesViews: true,
  products: (graph, node, shape, [x]) => product(x),
  shape(graph, node, [x]) {
    const name = own(node.options, "function");
    need(REDUCTIONS.includes(name), node, "a `function` that this runtime does not have", name);
    several(node, x);
    return x.slice(0, -1);
  },
  lower(lowering, node) {
    const name = node.options.function;
    let view = lowering.covering(node.inputs[0]);
    let [channels, ...sides] = lowering.laid.get(view.value);
    const size = product(sides);
    if (name === "mean" && size > 1 && String(last(view.merged())) === String([[size, 1]])) {
      const axes = view.axes.slice(0, -1).map((axis) => axis.map(([count, stride]) => [count, stride / size]));
      lowering.emitWhole(node, "mean", view.value, undefined, [channels, 1, 1], new View(node.output, axes));
      return;
    }
    view = lowering.planesLast(node.inputs[0]);
    [channels, ...sides] = lowering.laid.get(view.value);
    const [length, apart] = [last(view.shape), product(sides)];
    const without = (stride) => (stride >= apart ? Math.floor(stride / length) : stride); // groups become planes
    const axes = view.axes.slice(0, -1).map((axis) => axis.map(([count, stride]) => [count, without(stride)]));
    const work = { channels: length, number: REDUCTIONS.indexOf(name) };
    lowering.emitWhole(node, "reduce", view.value, work, [channels / length, ...sides], new View(node.output, axes));
  },
};

export const softmaxLast = {
  inputs: 1,
  takesViews: true,
  products: (graph, node, shape) => 20 * product(shape),
  shape(graph, node, inputs) {
    several(node, inputs[0]);
    return sameShape(graph, node, inputs);
  },
  lower(lowering, node) {
    const view = lowering.planesLast(node.inputs[0]);
    const work = { channels: last(view.shape) };
    lowering.emitWhole(node, "softmax_planes", view.value, work, lowering.laid.get(view.value), view.of(node.output));
  },
};

export const matmul = {
  options: ["scale"],
  inputs: 2,
  takesViews: true,
  products: (graph, node, shape, [first]) => product(shape) * last(first),
  shape(graph, node, [first, second]) {
    const scale = own(node.options, "scale");
    need(typeof scale === "number" && Math.abs(scale) <= MAX_SCALE, node, "a wrong scale", scale);
    const [one, two] = [first, second].map((shape) => shape.slice(0, -2));
    let fits = first.length === second.length && first.length >= 2 && last(first) === second[second.length - 2];
    fits &&= one.every((side, axis) => side === two[axis] || side === 1 || two[axis] === 1);
    need(fits, node, "inputs that cannot be multiplied", `${first}; ${second}`);
    return [...one.map((side, axis) => Math.max(side, two[axis])), first[first.length - 2], last(second)];
  },
  lower(lowering, node) {
    const shape = lowering.shapes.get(node.output);
    const batch = shape.slice(0, -2);
    let [one, two] = node.inputs.map((name) => {
      const view = lowering.view(name);
      return view.expanded([...batch, ...view.shape.slice(-2)]);
    });
    // by columns: each factor of the second times runs of the first
    const turned = isRuns(lowering, one, -2);
    if (turned) [one, two] = [two.turned(), one.turned()];
    else if (!isRuns(lowering, two, -1)) two = asMatrices(lowering, two);
    if (!isEven(lowering, one)) one = asMatrices(lowering, one);
    const [first, second] = [one, two].map((view) => stridesOf(lowering, view));
    const [rows, terms] = one.shape.slice(-2);
    const length = last(two.shape);
    const work = { other: two.value, first, second, rows, terms, length, scale: node.options.scale };
    const view = View.whole(node.output, [...batch, rows, length]);
    const sides = [product(batch) * rows, 1, length];
    lowering.emitWhole(node, "matmul", one.value, work, sides, turned ? view.turned() : view);
  },
};

function asMatrices(lowering, view) {
  const { shape } = view;
  return View.whole(lowering.arranged(view, [product(shape.slice(0, -1)), 1, last(shape)]), shape);
}

/** Whether the elements of an axis follow each other in memory, and the other's are evenly apart. */
function isRuns(lowering, view, axis) {
  const [, height] = lowering.laid.get(view.value);
  if (height !== 1 || lowering.vectors.has(view.value)) return false;
  const side = view.merged().at(axis);
  if (view.shape.at(axis) > 1 && (side.length !== 1 || side[0][1] !== 1)) return false;
  return isEven(lowering, view);
}

/** Whether each of the last two axes has its elements evenly apart in memory, be the gaps between rows what they may. */
function isEven(lowering, view) {
  const [, , width] = lowering.laid.get(view.value);
  const gap = lowering.vectors.has(view.value) ? 0 : 7;
  const at = lowering.indices(view).map((place) => place + Math.floor(place / width) * gap);
  const [rows, columns] = view.shape.slice(-2);
  for (let start = 0; start < at.length; start += rows * columns) {
    for (let i = 0; i < rows * columns; i += 1) {
      const [row, column] = [Math.floor(i / columns), i % columns];
      if (row && at[start + i] - at[start + i - columns] !== at[columns] - at[0]) return false;
      if (column && at[start + i] - at[start + i - 1] !== at[1] - at[0]) return false;
    }
  }
  return true;
}

/** Places of the batches' first elements, and how far apart rows and columns are. */
function stridesOf(lowering, view) {
  const [rows, columns] = view.shape.slice(-2);
  const places = lowering.indices(view);
  const batches = Int32Array.from(
    { length: places.length / (rows * columns) },
    (_, place) => places[place * rows * columns],
  );
  return {
    batches,
    row: rows > 1 ? places[columns] - places[0] : 0,
    column: columns > 1 ? places[1] - places[0] : 0,
  };
}

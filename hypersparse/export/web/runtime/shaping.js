// Operations that name or move elements: reshape, permute, slice and expand; constants and embeddings.

import { need, product } from "./checks.js";
import { arrayOf, dense, wholeNumber, wholeNumbers } from "./operands.js";
import { View, sidesOf } from "./views.js";

const MOST_OPTION = 2 ** 31 - 1;
const LARGEST_ID = 2 ** 24; // up to which a float holds every whole number

/** What only names other axes: a view where there is one, and a copy where not. */
const shaping = (options, shape, seen) => ({
  options,
  inputs: 1,
  takesViews: true,
  shape,
  lower(lowering, node) {
    const [name] = node.inputs;
    const constant = lowering.constants.get(name);
    const before = constant ? View.whole("", lowering.shapes.get(name)) : lowering.view(name);
    const { view, places } = withPlaces(lowering, before, (each) => seen(node, each));
    if (constant) {
      const from = places ?? lowering.indices(view);
      lowering.constants.set(
        node.output,
        Float32Array.from(from, (at) => constant[at]),
      );
      return;
    }
    lowering.readers.set(name, lowering.readersOf(name) + lowering.readersOf(node.output)); // who reads the one reads the other
    if (view) lowering.views.set(node.output, view);
    else lowering.gathered(node, before.value, places);
  },
});

/** The view of a view; where there is none, the positions of its elements. */
function withPlaces(lowering, before, seen) {
  const view = seen(before);
  if (view) return { view };
  const plain = seen(View.whole(before.value, before.shape)); // always one of a value in its order
  const places = lowering.indices(before);
  return { places: lowering.indices(plain).map((at) => places[at]) };
}

const sliceOf = (node) =>
  [["axis", 0], ["start", 0], ["length", 1], ["step", -MOST_OPTION]].map(([name, least]) => wholeNumber(node, name, least)); // prettier-ignore

export const reshape = shaping(
  ["shape"],
  (graph, node, [x]) => {
    const shape = wholeNumbers(node, "shape", 1);
    need(product(shape) === product(x), node, "another count of elements than its input", shape);
    return shape;
  },
  (node, view) => view.reshaped(wholeNumbers(node, "shape", 1)),
);

export const permute = shaping(
  ["order"],
  (graph, node, [x]) => {
    const order = wholeNumbers(node, "order", 0);
    const fits = order.length === x.length && x.every((_, axis) => order.includes(axis));
    need(fits, node, "no order of its input's axes", order);
    return order.map((axis) => x[axis]);
  },
  (node, view) => view.permuted(wholeNumbers(node, "order", 0)),
);

export const slice = shaping(
  ["axis", "start", "length", "step"],
  (graph, node, [x]) => {
    const [axis, start, length, step] = sliceOf(node);
    const last = start + (length - 1) * step;
    const fits = axis < x.length && step !== 0 && start < x[axis] && last >= 0 && last < x[axis];
    need(fits, node, "a slice outside of its input", JSON.stringify(node.options));
    return x.map((side, place) => (place === axis ? length : side));
  },
  (node, view) => view.sliced(...sliceOf(node)),
);

export const expand = shaping(
  ["shape"],
  (graph, node, [x]) => {
    const shape = wholeNumbers(node, "shape", 1);
    const fits = shape.length === x.length && x.every((side, axis) => side === 1 || side === shape[axis]);
    need(fits, node, "a shape that its input cannot be expanded to", shape);
    return shape;
  },
  (node, view) => view.expanded(wholeNumbers(node, "shape", 1)),
);

export const constant = {
  inputs: 1,
  takesViews: true,
  shape(graph, node) {
    const { shape } = arrayOf(graph, node, "value");
    need(shape.length > 0, node, "a value without axes", shape);
    return shape;
  },
  lower(lowering, node) {
    const value = arrayOf(lowering.graph, node, "value");
    lowering.budget.spend(product(value.shape));
    lowering.constants.set(node.output, Float32Array.from(dense(value)));
  },
};

export const embedding = {
  inputs: 1,
  takesViews: true,
  shape(graph, node, [x]) {
    const { shape } = arrayOf(graph, node, "weight");
    const fits = shape.length === 2 && shape[0] > 0 && shape[0] <= LARGEST_ID && x.length < 8;
    need(fits, node, "a weight that is no table of at most 2^24 rows", shape);
    return [...x, shape[1]];
  },
  lower(lowering, node) {
    const array = arrayOf(lowering.graph, node, "weight");
    const [rows, features] = array.shape;
    lowering.budget.spend(rows * features);
    const view = lowering.view(node.inputs[0]);
    const { shape } = view;
    const sides = [features, 1, product(shape)];
    const seen = View.whole(node.output, [features, ...shape]).permuted([...shape.map((_, axis) => axis + 1), 0]);
    const work = { places: lowering.indices(view), weight: Float32Array.from(dense(array)), rows };
    lowering.emitWhole(node, "embedding", view.value, work, sides, seen);
  },
};

// What operations read of a node: its options, and the arrays of the graph.

import { need, product } from "./checks.js";
import { own } from "./container.js";

const MOST_AXES = 8; // of a value

export const sameShape = (graph, node, [shape]) => shape;

export function pair(node, name, least) {
  const value = own(node.options, name);
  const fits =
    Array.isArray(value) && value.length === 2 && value.every((side) => Number.isInteger(side) && side >= least);
  need(fits, node, `no \`${name}\`, a pair of whole numbers of at least ${least}`, value);
  return value;
}

/** One to eight whole numbers. */
export function wholeNumbers(node, name, least) {
  const value = own(node.options, name);
  const given = Array.isArray(value) ? value : [value];
  const fits =
    given.length && given.length <= MOST_AXES && given.every((each) => Number.isInteger(each) && each >= least);
  need(fits, node, `no \`${name}\` of up to ${MOST_AXES} whole numbers of at least ${least}`, value);
  return given;
}

export const wholeNumber = (node, name, least) => wholeNumbers(node, name, least)[0];

export function arrayOf(graph, node, role) {
  const array = graph.arrays.get(node.tensors.get(role));
  need(array?.values, node, `no array \`${role}\` of floating-point numbers`, array?.dtype ?? "none");
  return array;
}

export function vectorOf(graph, node, role, length) {
  const array = arrayOf(graph, node, role);
  need(
    array.shape.length === 1 && array.shape[0] === length,
    node,
    `an array \`${role}\` of a wrong shape`,
    array.shape,
  );
  return dense(array);
}

/** Biases of a node; zeros if it has none. */
export const biasOf = (graph, node, length, role = "bias") =>
  node.tensors.has(role) ? vectorOf(graph, node, role, length).slice() : new Float64Array(length);

/** What the layer with a node's weight is called. */
export const layerName = (node) => node.tensors.get("weight").replace(/\.weight$/, "");

/** All elements of an array. */
export function dense(array) {
  if (!array.positions) return array.values;
  const all = new Float64Array(product(array.shape));
  array.positions.forEach((at, place) => (all[at] = array.values[place]));
  return all;
}

export function slid(node, shape, kernel) {
  const [stride, padding] = [pair(node, "stride", 1), pair(node, "padding", 0)];
  return [0, 1].map((axis) => Math.floor((shape[axis + 1] + 2 * padding[axis] - kernel[axis]) / stride[axis]) + 1);
}

export const isImage = (shape) => shape.length === 3;
export const channelsOf = (count) => Int32Array.from({ length: count }, (_, place) => place);

/** The nonzero weights: `visit(position, weight)` for each. */
export function eachNonzero(array, visit) {
  array.values.forEach((weight, place) => {
    if (weight !== 0) visit(array.positions ? array.positions[place] : place, weight);
  });
}

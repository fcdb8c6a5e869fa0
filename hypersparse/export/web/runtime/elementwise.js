// Functions of each element, and arithmetic with two values.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { KERNEL } from "./kernel.js";
import { sameShape } from "./operands.js";
import { View, sidesOf } from "./views.js";

const MAX_PARAMETER = 1e6;
const SWAPPED = KERNEL.swapped; // where the second operand is the first

function functionOf(node) {
  const name = own(node.options, "function");
  const number = Object.keys(KERNEL.functions).indexOf(name);
  need(number >= 0, node, "a `function` that this runtime does not have", name);
  return { number, ...KERNEL.functions[name] };
}

function parameterOf(node) {
  const parameter = own(node.options, "parameter") ?? 0;
  const fits = typeof parameter === "number" && Math.abs(parameter) <= MAX_PARAMETER;
  need(fits && functionOf(node).parameter === Object.hasOwn(node.options, "parameter"), node, "a wrong `parameter`", parameter);
  return parameter;
}

export const elementwise = {
  options: ["function", "parameter"],
  inputs: 1,
  takesViews: true,
  shape(graph, node, inputs) {
    parameterOf(node);
    return sameShape(graph, node, inputs);
  },
  lower(lowering, node) {
    const view = lowering.covering(node.inputs[0]);
    const sides = lowering.laid.get(view.value);
    lowering.budget.spend(4 * product(sides));
    const work = { ...functionOf(node), parameter: parameterOf(node) };
    lowering.emitWhole(node, "elementwise", view.value, work, sides, view.of(node.output));
  },
};

export const arithmetic = {
  options: ["operator"],
  inputs: 2,
  takesViews: true,
  shape(graph, node, [first, second]) {
    const name = own(node.options, "operator");
    need(KERNEL.operators.includes(name) && !Object.values(SWAPPED).includes(name), node, "an `operator` that this runtime does not have", name);
    const fits =
      first.length === second.length &&
      first.every((one, axis) => one === second[axis] || one === 1 || second[axis] === 1);
    need(fits, node, "inputs that do not broadcast", `${first}; ${second}`);
    return first.map((one, axis) => Math.max(one, second[axis]));
  },
  lower: (lowering, node) => lowerArithmetic(lowering, node, node.options.operator),
};

/** A layer of two values; the one that has the output's shape is read where it lies. */
export function lowerArithmetic(lowering, node, operator) {
  const shape = lowering.shapes.get(node.output);
  const isAlike = (name) => String(lowering.shapes.get(name)) === String(shape) && !lowering.constants.has(name);
  let [first, second] = node.inputs;
  if (!isAlike(first) && isAlike(second)) {
    [first, second] = [second, first];
    operator = SWAPPED[operator] ?? operator;
  }
  let view = lowering.covering(first);
  if (String(view.shape) !== String(shape)) {
    view = View.whole(lowering.arranged(view.expanded(shape), sidesOf(shape)), shape);
  }
  const sides = lowering.laid.get(view.value);
  const constant = lowering.constants.get(second);
  const seen = constant ? View.whole("", lowering.shapes.get(second)) : lowering.view(second);
  const [order, others] = [lowering.indices(view), lowering.indices(seen.expanded(shape))];
  const places = new Int32Array(product(sides));
  order.forEach((at, place) => (places[at] = others[place]));
  const work = { number: KERNEL.operators.indexOf(operator), places, constant, other: constant ? null : seen.value };
  lowering.emitWhole(node, "arithmetic", view.value, work, sides, view.of(node.output));
}

// Functions of each element, and arithmetic with two values.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { sameShape } from "./operands.js";
import { View, sidesOf } from "./views.js";

const MAX_PARAMETER = 1e6;
// in the order of `enum function` and `enum operator` in kernel/kernel.h
export const FUNCTIONS =
  "sigmoid tanh silu gelu gelu_tanh hardswish hardsigmoid leaky_relu elu softplus mish exp erf sqrt rsqrt log abs neg".split(
    " ",
  );
export const OPERATORS = ["add", "sub", "mul", "div", "maximum", "minimum", "rsub", "rdiv"];
const KEEPS_ZERO = "tanh silu gelu gelu_tanh hardswish leaky_relu elu mish erf sqrt abs neg".split(" ");
const WITH_PARAMETER = ["leaky_relu", "elu"];
const SWAPPED = { sub: "rsub", div: "rdiv" }; // where the second operand is the first

function parameterOf(node) {
  const parameter = own(node.options, "parameter") ?? 0;
  const fits = typeof parameter === "number" && Math.abs(parameter) <= MAX_PARAMETER;
  const wanted = WITH_PARAMETER.includes(node.options.function);
  need(fits && wanted === Object.hasOwn(node.options, "parameter"), node, "a wrong `parameter`", parameter);
  return parameter;
}

export const elementwise = {
  options: ["function", "parameter"],
  inputs: 1,
  takesViews: true,
  shape(graph, node, inputs) {
    const name = own(node.options, "function");
    need(FUNCTIONS.includes(name), node, "a `function` that this runtime does not have", name);
    parameterOf(node);
    return sameShape(graph, node, inputs);
  },
  lower(lowering, node) {
    const view = lowering.covering(node.inputs[0]);
    const sides = lowering.laid.get(view.value);
    const name = node.options.function;
    lowering.budget.spend(4 * product(sides));
    const work = {
      number: FUNCTIONS.indexOf(name),
      parameter: parameterOf(node),
      keepsZero: KEEPS_ZERO.includes(name),
    };
    lowering.emitWhole(node, "elementwise", view.value, work, sides, view.of(node.output));
  },
};

export const arithmetic = {
  options: ["operator"],
  inputs: 2,
  takesViews: true,
  shape(graph, node, [first, second]) {
    const name = own(node.options, "operator");
    need(OPERATORS.slice(0, 6).includes(name), node, "an `operator` that this runtime does not have", name);
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
  const work = { number: OPERATORS.indexOf(operator), places, constant, other: constant ? null : seen.value };
  lowering.emitWhole(node, "arithmetic", view.value, work, sides, view.of(node.output));
}

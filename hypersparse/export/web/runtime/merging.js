// Sums, concatenations and flattening.

import { need, product } from "./checks.js";
import { lowerArithmetic } from "./elementwise.js";
import { INPUT } from "./file.js";
import { arrayOf, dense, wholeNumber } from "./operands.js";
import { View, sidesOf } from "./views.js";

const MAX_JOINED = 2 ** 20; // inputs times channels of a concatenation that is written in place

export const add = {
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

export const plane = {
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

export const concat = {
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

export const flatten = {
  inputs: 1,
  shape: (graph, node, [x]) => [product(x)],
  lower(lowering, node) {
    const [name] = node.inputs;
    lowering.same.set(node.output, lowering.same.get(name));
    lowering.readers.set(name, lowering.readersOf(name) + lowering.readersOf(node.output)); // who reads the one reads the other
  },
};

// Whether a network fits together: the shape of every value, and how large it may be.

import { need, product } from "./checks.js";
import { own } from "./container.js";
import { NetworkError } from "./errors.js";
import { INPUT } from "./file.js";
import { OPERATIONS } from "./operations.js";

const MOST_NODES = 4096;
const MOST_INPUTS = 1024; // of a concatenation
const MOST_OPTION = 2 ** 31 - 1; // of a stride, a dilation and the like
const MOST_CHANNELS = 2 ** 19; // of a value
const MOST_OF_A_VALUE = 2 ** 24; // elements, with zeros around them
const MOST_OF_ALL_VALUES = 2 ** 27;
const MOST_PRODUCTS = 2 ** 35; // for one image, with pooling windows: some 10 s of a page that does not answer

const operationOf = (node) => own(OPERATIONS, node.op);

/** The shape of every value by name; throws NetworkError where something does not fit or is too large. */
export function shapesOf(graph) {
  const { nodes } = graph;
  if (!nodes.length) throw new NetworkError("A network needs at least one operation; this one has none.");
  if (nodes.length > MOST_NODES) throw tooMuch("The network", nodes.length, "operations", MOST_NODES);
  if (!graph.input.length) throw new NetworkError("This runtime takes arrays; this network takes a number.");
  const shapes = new Map([[INPUT, graph.input]]);
  const total = { elements: checkValue(INPUT, graph.input), products: 0 };
  for (const node of nodes) {
    const shape = shapeOf(graph, node, shapes);
    total.elements += checkValue(node.output, shape);
    const inputs = node.inputs.map((name) => shapes.get(name));
    total.products += operationOf(node).products?.(graph, node, shape, inputs) ?? 0;
    shapes.set(node.output, shape);
  }
  if (total.elements > MOST_OF_ALL_VALUES) {
    throw tooMuch("Its values together", total.elements, "elements", MOST_OF_ALL_VALUES);
  }
  if (total.products > MOST_PRODUCTS) throw tooMuch("One image", total.products, "products", MOST_PRODUCTS);
  return shapes;
}

const tooMuch = (what, count, unit, most) =>
  new NetworkError(`${what} has ${count} ${unit}, and ${most} are the most that this runtime takes.`);

function checkValue(name, shape) {
  const elements = product(shape);
  if (shape[0] > MOST_CHANNELS) throw tooMuch(`\`${name}\``, shape[0], "channels", MOST_CHANNELS);
  if (elements > MOST_OF_A_VALUE) throw tooMuch(`\`${name}\``, elements, "elements", MOST_OF_A_VALUE);
  return elements;
}

function shapeOf(graph, node, shapes) {
  const operation = operationOf(node);
  if (!operation) {
    throw new NetworkError(
      `The operation \`${node.op}\` (\`${node.output}\`) does not run in a browser; the Python package may run it.`,
    );
  }
  if (operation.lastOnly && node !== graph.nodes[graph.nodes.length - 1]) {
    throw new NetworkError(`\`${node.output}\` is a ${node.op}, which can only be the last operation of a network.`);
  }
  const inputs = node.inputs.map((name) => shapes.get(name));
  need(inputs.every(Boolean), node, "an input that nothing made before", node.inputs);
  need(
    operation.inputs ? inputs.length === operation.inputs : inputs.length > 0,
    node,
    "another count of inputs",
    inputs.length,
  );
  need(inputs.length <= MOST_INPUTS, node, "too many inputs", inputs.length);
  const strange = Object.keys(node.options).find((name) => !operation.options?.includes(name));
  need(strange === undefined, node, "an option that this runtime does not know", strange);
  for (const value of Object.values(node.options)) {
    const numbers = Array.isArray(value) ? value : [value];
    need(
      !numbers.some((number) => Number.isInteger(number) && number > MOST_OPTION),
      node,
      "an option beyond 2^31",
      value,
    );
  }
  checkPadded(node, inputs[0]);
  const shape = operation.shape(graph, node, inputs);
  need(
    shape.every((side) => side > 0),
    node,
    "an empty shape",
    shape,
  );
  return shape;
}

function checkPadded(node, shape) {
  const padding = own(node.options, "padding");
  if (!Array.isArray(padding) || shape.length !== 3) return;
  const [height, width] = [0, 1].map((axis) => shape[axis + 1] + 2 * (padding[axis] || 0));
  checkValue(node.inputs[0], [shape[0], height, width]);
}

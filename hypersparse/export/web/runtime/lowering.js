// From a graph to layers: batch norms folded, and biases, planes, sums and ReLUs made part of the layer before them.

import { WorkBudget, product } from "./checks.js";
import { INPUT } from "./file.js";
import { shapesOf } from "./graph.js";
import { Entries, withoutDeadChannels } from "./layers.js";
import { channelsOf } from "./operands.js";
import { OPERATIONS } from "./operations.js";
import { View, sidesOf } from "./views.js";

const MOST_WORK = 2 ** 28; // numbers that are touched while a network is prepared: seconds

/** The layers of a graph, their values' shapes as (channels, height, width), and the output. */
export function layersOf(graph) {
  const lowering = new Lowering(graph);
  for (const node of graph.nodes) {
    if (!OPERATIONS[node.op].takesViews) for (const name of node.inputs) lowering.makePlain(name);
    OPERATIONS[node.op].lower(lowering, node);
  }
  const network = lowering.network();
  return { ...network, layers: withoutDeadChannels(network) };
}

/** Multiplications for one image if no weight were zero. */
export function denseProducts(graph, shapes) {
  const weighted = graph.nodes.filter((node) => OPERATIONS[node.op].uses);
  return weighted.reduce((sum, node) => sum + denseProductsOf(graph, node, shapes), 0);
}

export const denseProductsOf = (graph, node, shapes) =>
  product(graph.arrays.get(node.tensors.get("weight")).shape) * OPERATIONS[node.op].uses(node, shapes);

class Lowering {
  constructor(graph) {
    this.graph = graph;
    this.budget = new WorkBudget(MOST_WORK);
    this.shapes = shapesOf(graph);
    this.readers = new Map();
    for (const name of graph.nodes.flatMap((node) => node.inputs)) this.readers.set(name, this.readersOf(name) + 1);
    this.layers = []; // null: another one took it in
    this.made = new Map(); // of each value, the places of the layers that make it
    this.same = new Map([[INPUT, INPUT]]); // where a node's value really lies
    this.views = new Map(); // of values that lie otherwise than their shape says
    this.constants = new Map(); // values that are the same for every input, not yet in memory
    this.copies = new Map(); // by view and sides, the values with a view's elements in their order
    this.laid = new Map([[INPUT, sidesOf(graph.input)]]);
    this.vectors = new Set(graph.input.length === 1 ? [INPUT] : []);
    this.joined = new Set(); // values that several layers make, each some of the channels
  }

  network() {
    const { nodes } = this.graph;
    const last = nodes[nodes.length - 1].output;
    this.makePlain(last);
    let output = this.same.get(last);
    if (output === INPUT) {
      this.append(this.copy(INPUT, "copy"));
      this.laid.set("copy", this.laid.get(INPUT));
      if (this.vectors.has(INPUT)) this.vectors.add("copy");
      output = "copy";
    }
    const layers = this.layers.filter(Boolean);
    return { layers, shapes: this.laid, vectors: this.vectors, output, outputShape: this.shapes.get(last) };
  }

  readersOf(name) {
    return this.readers.get(name) ?? 0;
  }

  /** Add the last layer of a node. */
  emit(node, layer) {
    this.append(layer);
    this.addValue(node);
  }

  append(layer) {
    this.budget.spend(layer.rows.length + 1000);
    this.made.set(layer.output, [...(this.made.get(layer.output) ?? []), this.layers.length]);
    this.layers.push(layer);
  }

  makers(name) {
    return (this.made.get(name) ?? []).map((place) => this.layers[place]).filter(Boolean);
  }

  /** Change the layers that make a value, so that they make another one. */
  rename(name, change) {
    const places = this.made.get(name);
    this.made.delete(name);
    for (const place of places) {
      const layer = change(this.layers[place]);
      this.budget.spend(layer.entries.length + layer.bias.length + 1000);
      this.layers[place] = layer;
      this.made.set(layer.output, [...(this.made.get(layer.output) ?? []), place]);
    }
  }

  /** Give the node's output its own place in memory. */
  addValue(node) {
    const shape = this.shapes.get(node.output);
    this.laid.set(node.output, sidesOf(shape));
    this.same.set(node.output, node.output);
    if (shape.length === 1) this.vectors.add(node.output);
  }

  /** The view of a node's value over a value of the engine. */
  view(name) {
    const constant = this.constants.get(name);
    if (constant) this.writeConstant(name, constant);
    return this.views.get(name) ?? View.whole(this.same.get(name), this.shapes.get(name));
  }

  writeConstant(name, constant) {
    this.constants.delete(name);
    const places = this.indices(View.whole(name, this.shapes.get(name)));
    this.addWhole("copy", "constant", INPUT, name, { places, constant }, sidesOf(this.shapes.get(name)));
    this.same.set(name, name);
  }

  /** The positions of a view's elements. */
  indices(view) {
    this.budget.spend(4 * product(view.shape));
    return view.indices();
  }

  /** Add a layer of whole values, whose output has these sides. */
  addWhole(kind, name, input, output, work, sides) {
    this.append({ kind, name, input, output, rows: channelsOf(sides[0]), work });
    this.addSides(output, sides, kind);
  }

  addSides(output, sides, kind) {
    this.laid.set(output, sides);
    // a convolution writes whole vectors, over what is beside
    if (sides[1] === 1 && sides[2] === 1 && kind !== "conv") this.vectors.add(output);
  }

  /** The same for the layer that makes a node's value, seen through a view. */
  emitWhole(node, kind, input, work, sides, view = null) {
    this.addWhole(kind, nameOf(node), input, node.output, work, sides);
    this.see(node, view);
  }

  see(node, view) {
    this.same.set(node.output, node.output);
    if (view && !this.isPlain(view, this.shapes.get(node.output))) this.views.set(node.output, view);
  }

  isPlain(view, shape) {
    const sides = this.laid.get(view.value);
    return view.isWhole(sides) && (shape.length === 1 || String(sides) === String(sidesOf(shape)));
  }

  /** Copy a node's value to its own shape, (channels, rows, columns), or to consecutive elements. */
  makePlain(name) {
    const [view, shape] = [this.view(name), this.shapes.get(name)];
    if (!this.views.has(name)) return;
    this.same.set(name, this.isPlain(view, shape) ? view.value : this.arranged(view, sidesOf(shape)));
    this.views.delete(name);
  }

  /** A value with the elements of a view in their order. */
  arranged(view, sides) {
    const key = JSON.stringify([view.value, view.axes, view.first, sides]);
    if (!this.copies.has(key)) {
      const name = `${view.value} copy ${this.copies.size}`;
      this.addWhole("copy", "copy", view.value, name, { places: this.indices(view) }, sides);
      this.copies.set(key, name);
    }
    return this.copies.get(key);
  }

  /** Add a layer that copies elements of a value, at these places, to a node's output. */
  gathered(node, value, places) {
    this.emitWhole(node, "copy", value, { places }, sidesOf(this.shapes.get(node.output)));
  }

  /** Whether a value is a view of another layout, or a constant that is not in memory yet. */
  isLaid(name) {
    return this.views.has(name) || this.constants.has(name);
  }

  /** The view of a node's value, over a value without other elements. */
  covering(name) {
    const [view, shape] = [this.view(name), this.shapes.get(name)];
    return view.covers(this.laid.get(view.value)) ? view : View.whole(this.arranged(view, sidesOf(shape)), shape);
  }

  /** The view with its last axis over consecutive channels; without `groups`, over all channels. */
  planesLast(name, groups = true) {
    const view = this.covering(name);
    const { shape } = view;
    const count = shape[shape.length - 1];
    const [channels, ...sides] = this.laid.get(view.value);
    const merged = view.merged();
    const last = JSON.stringify(count > 1 ? [[count, product(sides)]] : []);
    if (JSON.stringify(merged[merged.length - 1]) === last && (channels === count || (groups && count > 1))) {
      return view;
    }
    const order = shape.map((_, axis) => axis);
    const rest = shape.slice(0, -1);
    const value = this.arranged(view.permuted([order.length - 1, ...order.slice(0, -1)]), [count, 1, product(rest)]);
    return View.whole(value, [count, ...rest]).permuted([...order.slice(1), 0]);
  }

  /** Fuse the sum of two values into the layer that makes the second, if both have the same layout. */
  addValues(node, first, second) {
    if (this.constants.has(first) || this.constants.has(second) || !this.canTake(second, false)) return false;
    const [one, two] = [this.view(first), this.view(second)];
    const sides = this.laid.get(two.value);
    const alike = one.isLike(two) && one.first === 0 && String(this.laid.get(one.value)) === String(sides);
    if (!alike || this.vectors.has(one.value) !== this.vectors.has(two.value)) return false;
    const layer = this.open(node, node.inputs.indexOf(second), false);
    this.emitView(node, { ...layer, residual: one.value }, sides, two);
    return true;
  }

  /** Add a layer of sums that makes a node's value, which a view over another value says. */
  emitView(node, layer, sides, view) {
    this.append({ ...layer, output: node.output });
    this.addSides(node.output, sides, layer.kind);
    this.see(node, view.of(node.output));
  }

  changeView(node, change, sums) {
    const [name] = node.inputs;
    if (!this.canTake(name, sums)) {
      this.makePlain(name);
      this.emit(node, { ...change(this.copy(name, node.output)), output: node.output });
      return;
    }
    const view = this.views.get(name);
    this.emitView(node, change(this.open(node, 0, sums)), this.laid.get(name), view);
  }

  /** Change the layers that make a value: one layer, or several that each make some of its channels. */
  change(node, change, sums) {
    const [name] = node.inputs;
    this.view(name); // a constant is written
    if (this.views.has(name)) {
      this.changeView(node, change, sums);
      return;
    }
    const joined = this.joined.has(name) && this.readersOf(name) === 1;
    if (!joined || this.makers(name).some(isActivated)) {
      this.emit(node, { ...change(this.open(node, 0, sums)), output: node.output });
      return;
    }
    this.rename(name, (layer) => ({ ...change(layer), output: node.output }));
    this.joined.add(node.output);
    this.addValue(node);
  }

  /** Whether one layer makes a value and may write it elsewhere. */
  isMovable(name) {
    const layer = this.onlyMaker(name);
    return Boolean(layer?.entries && !layer.residual && !layer.plane);
  }

  /** Whether the layer that makes a value may do more to it; with `sums` also after a residual sum. */
  canTake(name, sums) {
    const layer = this.onlyMaker(name);
    return Boolean(layer?.entries) && !isActivated(layer) && (sums || !layer.residual);
  }

  onlyMaker(name) {
    const alone = this.made.get(name)?.length === 1 && this.readersOf(name) === 1 && this.same.get(name) === name;
    return alone ? this.makers(name)[0] : null;
  }

  /** Where a value lies in its own shape. A flattened view is copied first. */
  materialized(name) {
    const value = this.same.get(name);
    const shape = this.shapes.get(name);
    if (shape.length !== 1 || this.vectors.has(value)) return value;
    const copy = `${name} flat`;
    this.append(this.copy(name, copy));
    this.laid.set(copy, [shape[0], 1, 1]);
    this.vectors.add(copy);
    this.same.set(name, copy);
    return copy;
  }

  /** The layer that takes a node in, removed from the list; a copying layer where there is none. */
  open(node, place, sums) {
    const name = node.inputs[place];
    if (!this.canTake(name, sums)) return this.copy(name, node.output);
    const [at] = this.made.get(name);
    this.made.delete(name);
    const layer = this.layers[at];
    this.layers[at] = null;
    this.budget.spend(layer.entries.length + layer.bias.length);
    return layer;
  }

  /** A layer that copies its input: the start of ReLUs, sums and norms that no layer before can take in. */
  copy(name, output) {
    const [value, shape] = [this.same.get(name) ?? name, this.shapes.get(name)];
    const count = shape[0];
    const [, height, width] = shape.length > 1 ? [0, 1, 1] : this.laid.get(value);
    const entries = Entries.build(this.budget, count, (add) => {
      for (let at = 0; at < count; at += 1) {
        add(at, Math.floor(at / (height * width)), Math.floor(at / width) % height, at % width, 1);
      }
    });
    const window = { stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
    const kind = shape.length > 1 ? "conv" : "dot";
    return {
      kind,
      name: "copy",
      input: value,
      output,
      rows: entries.row.slice(),
      entries,
      bias: new Float64Array(count),
      ...window,
    };
  }

  /** The layer with its rows from `first` on, as part of a larger value. */
  moved(layer, output, first, channels) {
    this.budget.spend(channels);
    const bias = new Float64Array(channels);
    bias.set(layer.bias, first);
    const entries = layer.entries.with({ row: layer.entries.row.map((row) => row + first) });
    return { ...layer, output, rows: layer.rows.map((row) => row + first), entries, bias };
  }
}

/** What a layer of whole values is shown as. */
const nameOf = (node) => node.options.function ?? node.options.operator ?? node.op;
const isActivated = (layer) => Boolean(layer.relu || layer.clip);

// From a graph to layers: batch norms folded, and biases, planes, sums and ReLUs made part of the layer before them.

import { WorkBudget, product } from "./checks.js";
import { INPUT } from "./file.js";
import { shapesOf } from "./graph.js";
import { Entries, withoutDeadChannels } from "./layers.js";
import { OPERATIONS } from "./operations.js";

const MOST_WORK = 2 ** 28; // numbers that are touched while a network is prepared: seconds

/** The layers of a graph, their values' shapes as (channels, height, width), and the output. */
export function layersOf(graph) {
  const lowering = new Lowering(graph);
  for (const node of graph.nodes) OPERATIONS[node.op].lower(lowering, node);
  const network = lowering.network();
  return { ...network, layers: withoutDeadChannels(network) };
}

/** Multiplications for one image if no weight were zero. */
export function denseProducts(graph, shapes) {
  const weighted = graph.nodes.filter((node) => OPERATIONS[node.op].products && node.tensors.has("weight"));
  return weighted.reduce((sum, node) => sum + denseProductsOf(graph, node, shapes), 0);
}

export const denseProductsOf = (graph, node, shapes) =>
  product(graph.arrays.get(node.tensors.get("weight")).shape) * product(shapes.get(node.output).slice(1));

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
    this.laid = new Map([[INPUT, graph.input.length === 3 ? graph.input : [graph.input[0], 1, 1]]]);
    this.vectors = new Set(graph.input.length === 1 ? [INPUT] : []);
    this.joined = new Set(); // values that several layers make, each some of the channels
  }

  network() {
    const { nodes } = this.graph;
    const last = nodes[nodes.length - 1].output;
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
    this.laid.set(node.output, shape.length === 3 ? shape : [shape[0], 1, 1]);
    this.same.set(node.output, node.output);
    if (shape.length === 1) this.vectors.add(node.output);
  }

  /** Change the layers that make a value: one layer, or several that each make some of its channels. */
  change(node, change, sums) {
    const [name] = node.inputs;
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
    const [, height, width] = shape.length === 3 ? [0, 1, 1] : this.laid.get(value);
    const entries = Entries.build(this.budget, count, (add) => {
      for (let at = 0; at < count; at += 1) {
        add(at, Math.floor(at / (height * width)), Math.floor(at / width) % height, at % width, 1);
      }
    });
    const window = { stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
    const kind = shape.length === 3 ? "conv" : "dot";
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

const isActivated = (layer) => Boolean(layer.relu || layer.clip);

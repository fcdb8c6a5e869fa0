// `SparseModel`: a network that is ready to predict.

import { product } from "./checks.js";
import { NetworkError } from "./errors.js";
import { INPUT, readGraph } from "./file.js";
import { shapesOf } from "./graph.js";
import { inflate } from "./inflate.js";
import { KERNEL } from "./kernel.js";
import { denseProducts, denseProductsOf, layersOf } from "./lowering.js";
import { OPERATIONS } from "./operations.js";
import { place } from "./plane_layout.js";
import { writeProgram } from "./program.js";

const PAGE = 65536; // bytes
const MOST_KERNEL = 2 ** 20; // bytes
const MOST_IMAGES = 4096; // of one call
const ROUND = 1; // milliseconds of calls of one step that are timed together: clocks of browsers are coarse
const ROUNDS = 4;
const MOST_CALLS = 2 ** 16;
const VIEWS = ["reshape", "permute", "slice", "expand", "flatten"]; // operations whose elements are those of their input

let compiled = null; // the kernel, once for all models

/** The bytes of base64. */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

function kernel() {
  compiled ??= inflate(fromBase64(KERNEL.code), MOST_KERNEL).then((code) => WebAssembly.compile(code));
  return compiled;
}

/** A network that predicts in WebAssembly, with its nonzero weights only. */
export class SparseModel {
  /** The network in the bytes of a `.hsp` file, or in the file at an address. */
  static async load(source) {
    const bytes = typeof source === "string" || source instanceof URL ? await fetched(source) : source;
    const graph = await readGraph(bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes);
    const shapes = shapesOf(graph);
    const network = layersOf(graph);
    const program = writeProgram(network, place(network), KERNEL.kinds);
    return new SparseModel(graph, shapes, network, program, await WebAssembly.instantiate(await kernel(), {}));
  }

  constructor(graph, shapes, network, program, instance) {
    this.about = graph.about;
    this.inputShape = [...graph.input];
    this.outputShape = [...network.outputShape];
    this.layers = describeLayers(graph, shapes, network);
    this.products = network.layers.reduce((sum, layer) => sum + productsOf(layer, network), 0);
    this.denseProducts = denseProducts(graph, shapes);
    this.endsInSoftmax = graph.nodes[graph.nodes.length - 1].op === "softmax";
    this.ids = idCount(graph);
    this.memory = new Memory(instance, program, product(this.inputShape), product(this.outputShape));
  }

  /** Outputs for one image or several, as one array after another. */
  run(images) {
    const size = product(this.inputShape);
    const count = images.length / size;
    if (!Number.isInteger(count) || count < 1 || count > MOST_IMAGES) {
      throw new NetworkError(
        `The network takes 1 to ${MOST_IMAGES} images of ${this.inputShape.join(" x ")} numbers; got ${images.length} numbers.`,
      );
    }
    if (this.ids && !images.every((id) => id >= 0 && id < this.ids && Number.isInteger(id))) {
      throw new NetworkError(`The network takes token numbers, whole numbers from 0 to ${this.ids - 1}.`);
    }
    return this.memory.run(images, count);
  }

  /** Milliseconds of each step of the last image, by the name of its layer; `clock` gives milliseconds. */
  profile(clock = () => performance.now()) {
    return this.memory.profile(clock);
  }
}

async function fetched(address) {
  const response = await fetch(address);
  if (!response.ok) throw new NetworkError(`${address} cannot be loaded: status ${response.status}.`);
  return response.arrayBuffer();
}

/** The rows of the smallest embedding that reads the input; 0 if there is none. The kernel would clip other numbers. */
function idCount(graph) {
  const views = new Set([INPUT]);
  const counts = [];
  for (const { op, inputs, output, tensors } of graph.nodes) {
    if (!views.has(inputs[0])) continue;
    if (VIEWS.includes(op)) views.add(output);
    if (op === "embedding") counts.push(graph.arrays.get(tensors.get("weight")).shape[0]);
  }
  return counts.length ? Math.min(...counts) : 0;
}

function productsOf(layer, network) {
  const [, height, width] = network.shapes.get(layer.output);
  return layer.entries ? layer.entries.length * height * width : 0;
}

/** Layers with weights: how many are not zero, and the products of one image that are computed, and of a dense network. */
function describeLayers(graph, shapes, network) {
  const computed = new Map();
  for (const layer of network.layers) {
    computed.set(layer.name, (computed.get(layer.name) ?? 0) + productsOf(layer, network));
  }
  const weighted = graph.nodes.filter((node) => OPERATIONS[node.op].uses);
  return weighted.map((node) => {
    const weight = graph.arrays.get(node.tensors.get("weight"));
    const name = node.tensors.get("weight").replace(/\.weight$/, "");
    return {
      name,
      shape: [...weight.shape],
      kept: weight.values.reduce((sum, value) => sum + (value !== 0), 0),
      total: product(weight.shape),
      products: computed.get(name) ?? 0,
      denseProducts: denseProductsOf(graph, node, shapes),
    };
  });
}

/** A program in the memory of its own instance of the kernel. */
class Memory {
  constructor(instance, program, imageSize, outputSize) {
    this.exports = instance.exports;
    if (Number(this.exports.hs_step_size()) !== KERNEL.fields.length) {
      throw new NetworkError("The kernel belongs to another version of this runtime; build both again.");
    }
    Object.assign(this, { program, imageSize, outputSize, capacity: 0 });
    this.stepBytes = 8 * KERNEL.fields.length;
    this.free = this.exports.__heap_base.value;
    this.steps = this.reserve(this.stepBytes * program.steps.length);
    this.tables = this.reserve(4 * program.tables.length);
    this.workspace = this.reserve(4 * program.floats);
    this.end = this.free;
    this.words(this.tables, program.tables.length).set(program.tables);
    const rows = new BigInt64Array(this.buffer, this.steps, KERNEL.fields.length * program.steps.length);
    program.steps.forEach(({ words }, number) => {
      KERNEL.fields.forEach((name, field) => (rows[number * KERNEL.fields.length + field] = BigInt(words[name] ?? 0)));
    });
    this.makeRoom(1);
  }

  get buffer() {
    return this.exports.memory.buffer;
  }

  words(at, length) {
    return new Int32Array(this.buffer, at, length);
  }

  floats(at, length) {
    return new Float32Array(this.buffer, at, length);
  }

  /** Where so many bytes more begin. */
  reserve(bytes) {
    const at = Math.ceil(this.free / 64) * 64;
    this.free = at + bytes;
    const pages = Math.ceil((this.free - this.buffer.byteLength) / PAGE);
    try {
      if (pages > 0) this.exports.memory.grow(pages);
    } catch {
      throw new NetworkError(
        `The network needs ${Math.ceil(this.free / 1e6)} MB of memory, which this browser does not give.`,
      );
    }
    return at;
  }

  makeRoom(images) {
    if (images <= this.capacity) return;
    this.free = this.end;
    this.inputs = this.reserve(4 * images * this.imageSize);
    this.outputs = this.reserve(4 * images * this.outputSize);
    this.capacity = images;
  }

  run(images, count) {
    this.makeRoom(count);
    this.floats(this.inputs, images.length).set(images);
    this.call(0, this.program.steps.length, count);
    return this.floats(this.outputs, count * this.outputSize).slice();
  }

  call(first, steps, count) {
    const [imageSize, outputSize] = [BigInt(this.imageSize), BigInt(this.outputSize)];
    const program = this.steps + first * this.stepBytes;
    const { tables, workspace, inputs, outputs } = this;
    this.exports.hs_run(
      program,
      BigInt(steps),
      tables,
      workspace,
      inputs,
      outputs,
      imageSize,
      outputSize,
      BigInt(count),
      1n,
    );
  }

  /** The fastest of some rounds of calls of each step. */
  profile(clock) {
    const times = this.program.steps.map(({ name }, number) => {
      this.call(0, this.program.steps.length, 1); // as in a run: some steps add to what is there
      let [calls, best] = [1, Infinity];
      for (let round = 0; round < ROUNDS;) {
        const began = clock();
        for (let i = 0; i < calls; i += 1) this.call(number, 1, 1);
        const took = clock() - began;
        if (took < ROUND && calls < MOST_CALLS) {
          calls *= 2;
          continue;
        }
        best = Math.min(best, took / calls);
        round += 1;
      }
      return { name, milliseconds: best };
    });
    this.call(0, this.program.steps.length, 1);
    return times;
  }
}

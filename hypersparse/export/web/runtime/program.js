// A placed network as a program for the kernel: rows of numbers and tables of constants, as kernel/kernel.h says.

import { NetworkError } from "./errors.js";
import { isWhole } from "./layers.js";
import { valueWords } from "./value_steps.js";

const NONE = -1;
const MOST_WORDS = 2 ** 26; // of tables, 256 MB
const VECTOR = 4; // floats
const MAX_TILE = 12; // vectors of a tile with one chain of sums,
const MAX_TILE_OF_PAIRS = 4; // and with two
const FEW_VECTORS = 5; // of a plane, where sums would wait for each other

/** Constants, one after another in 32-bit words. */
class Tables {
  parts = [];
  words = 0;

  /** Where the numbers begin; entries are pairs of eight bytes. */
  add(numbers) {
    const [at, size] = [this.words, numbers.length + (numbers.length % 2)];
    this.parts.push([at, new Int32Array(numbers.buffer, numbers.byteOffset, numbers.length)]);
    this.words += size;
    if (this.words > MOST_WORDS) throw new NetworkError("The network needs tables of more than 256 MB.");
    return at;
  }

  all() {
    const words = new Int32Array(this.words + 32);
    for (const [at, part] of this.parts) words.set(part, at);
    return words;
  }
}

/** Rows for the kernel, each with the name of the layer it belongs to; tables, and floats of the workspace. */
export function writeProgram(network, placed, kinds) {
  const writer = new Writer(placed, kinds);
  const steps = [writer.pack(), ...placed.steps.map((step) => writer.step(step)), writer.unpack(network.output)];
  return { steps, tables: writer.tables.all(), floats: placed.floats + 64 };
}

class Writer {
  constructor(placed, kinds) {
    Object.assign(this, { placed, kinds, tables: new Tables() });
  }

  row(kind, input, output, words) {
    const [before, after] = [this.placed.values.get(input), this.placed.values.get(output)];
    return {
      kind: this.kinds.indexOf(kind),
      input: this.placed.at.get(input) ?? 0,
      output: this.placed.at.get(output) ?? 0,
      input_plane: before.plane,
      output_plane: after.plane,
      height: before.height,
      width: before.width,
      pitch: before.pitch,
      out_height: after.height,
      out_width: after.width,
      out_pitch: after.pitch,
      groups: 1,
      lanes: 1,
      tile: 1,
      chains: 1,
      plane: NONE,
      residual: NONE,
      lazy_bias: NONE,
      clip: NONE,
      mask: NONE,
      shifts: NONE,
      ...words,
    };
  }

  pack() {
    const { channels } = this.placed.values.get("input");
    const rows = Int32Array.from({ length: channels }, (_, place) => place);
    return {
      name: "input",
      words: this.row("pack", "input", "input", { rows: channels, channels: this.tables.add(rows) }),
    };
  }

  unpack(output) {
    const rows = this.placed.values.get(output).channels;
    return { name: "output", words: this.row("unpack", output, output, { rows }) };
  }

  step(step) {
    return { name: step.name, words: this.row(step.kind, step.input, step.output, this.words(step)) };
  }

  words(step) {
    if (step.kind === "split") return this.split(step);
    if (!isWhole(step)) return step.entries ? this.sums(step) : this.pooled(step);
    const [valueOf, addressOf] = [this.placed.values, this.placed.at].map((each) => (name) => each.get(name));
    return valueWords(step, this.tables, valueOf, addressOf);
  }

  pooled(step) {
    const [kernel, stride, padding] = [step.kernel, step.stride, step.padding].map((each) => each ?? [0, 0]);
    return {
      rows: step.rows.length,
      channels: this.tables.add(step.rows),
      ...{ kernel_y: kernel[0], kernel_x: kernel[1], stride_y: stride[0], stride_x: stride[1] },
      ...{ pad_y: padding[0], pad_x: padding[1] },
    };
  }

  split({ places, source: [, height, width], stride }) {
    const triples = new Int32Array(3 * places.length);
    places.forEach((at, place) => {
      const row = Math.floor(at / width);
      triples.set([Math.floor(row / height), row % height, at % width], 3 * place);
    });
    return { rows: places.length, channels: this.tables.add(triples), stride_y: stride[0], stride_x: stride[1] };
  }

  sums(layer) {
    const value = this.placed.values.get(layer.output);
    const isDot = layer.kind === "dot";
    const vectors = Math.ceil(value.run / VECTOR);
    const chains = isDot ? 4 : vectors <= FEW_VECTORS ? 2 : 1;
    const counts = new Int32Array(layer.bias.length);
    for (const row of layer.entries.row) counts[row] += 1;
    const rows = layer.rows.slice().sort((first, second) => counts[first] - counts[second]); // loops of one length together
    const words = {
      rows: rows.length,
      channels: this.tables.add(rows),
      bias: this.tables.add(Float32Array.from(rows, (row) => layer.bias[row])),
      relu: layer.relu ? 1 : 0,
      chains,
      ...this.entries(layer, rows, counts, chains),
    };
    if (layer.clip) words.clip = this.tables.add(Float32Array.from(layer.clip));
    if (layer.residual) words.residual = this.placed.at.get(layer.residual);
    if (layer.plane) Object.assign(words, this.plane(layer, rows, value));
    return isDot ? words : { ...words, ...runs(value, vectors, chains) };
  }

  /** Offset and weight of each entry, by rows; the last of a row is repeated with no weight up to a whole of `chains`. */
  entries(layer, rows, counts, chains) {
    const { channel, y, x, weight, row } = layer.entries;
    const { plane, pitch } = this.placed.values.get(layer.input);
    const starts = new Int32Array(rows.length + 1);
    const next = new Int32Array(counts.length).fill(NONE);
    rows.forEach((each, place) => {
      next[each] = starts[place];
      starts[place + 1] = starts[place] + Math.ceil(counts[each] / chains) * chains;
    });
    const pairs = new Int32Array(2 * starts[rows.length]);
    const weights = new Float32Array(pairs.buffer);
    for (let place = 0; place < row.length; place += 1) {
      const at = 2 * next[row[place]]++;
      pairs[at] = channel[place] * plane + y[place] * pitch + x[place];
      weights[at + 1] = weight[place];
    }
    rows.forEach((each, place) => {
      for (let at = next[each]; at < starts[place + 1]; at += 1) pairs[2 * at] = pairs[2 * at - 2];
    });
    return {
      starts: this.tables.add(starts),
      entries: this.tables.add(pairs),
      distances: this.tables.add(new Int32Array(1)),
    };
  }

  plane(layer, rows, { height, width, pitch }) {
    const size = Math.ceil((height * pitch) / VECTOR) * VECTOR;
    const all = new Float32Array(rows.length * size + 8 * VECTOR);
    rows.forEach((row, place) => {
      for (let at = 0; at < height * width; at += 1) {
        all[place * size + Math.floor(at / width) * pitch + (at % width)] = layer.plane[row * height * width + at];
      }
    });
    return { plane: this.tables.add(all), plane_size: size };
  }
}

/**
 * Which floats of a plane are computed: one run, whose zeros between rows are then restored. All rows of a tile come
 * before the next tile: the densest layers of VGG-19 take 0.3 to 0.4 times as long that way, others about as long.
 */
function runs(value, vectors, chains) {
  const most = chains === 2 ? MAX_TILE_OF_PAIRS : MAX_TILE;
  const tile = Math.ceil(vectors / Math.ceil(vectors / most));
  const run = { segments: 1, segment_length: value.run, tile, tile_outer: 1 };
  if (!value.padded) return run;
  return {
    ...run,
    pad_first: value.width,
    pad_length: value.pitch - value.width,
    pad_stride: value.pitch,
    pad_end: value.run,
  };
}

// The kernel's view of a network: layers of entries (row, channel, tap, weight), with fused operations.

/** Nonzero weights: their output channel, input channel, tap and value. */
export class Entries {
  constructor(row, channel, y, x, weight) {
    Object.assign(this, { row, channel, y, x, weight, length: row.length });
  }

  /** Entries from calls of `add(row, channel, y, x, weight)`, at most `most`. */
  static build(budget, most, visit) {
    budget.spend(4 * most);
    const [row, channel, y, x] = [0, 0, 0, 0].map(() => new Int32Array(most));
    const weight = new Float64Array(most);
    let count = 0;
    visit((toRow, fromChannel, tapY, tapX, value) => {
      row[count] = toRow;
      channel[count] = fromChannel;
      y[count] = tapY;
      x[count] = tapX;
      weight[count] = value;
      count += 1;
    });
    return new Entries(...[row, channel, y, x, weight].map((part) => part.subarray(0, count)));
  }

  /** The entries for which `keep(place)` holds. */
  where(keep) {
    const chosen = new Int32Array(this.length);
    let count = 0;
    for (let place = 0; place < this.length; place += 1) if (keep(place)) chosen[count++] = place;
    if (count === this.length) return this;
    const parts = [this.row, this.channel, this.y, this.x, this.weight].map((part) => {
      const taken = new part.constructor(count);
      for (let place = 0; place < count; place += 1) taken[place] = part[chosen[place]];
      return taken;
    });
    return new Entries(...parts);
  }

  /** The entries with each row multiplied by its scale. */
  scaled(scale) {
    const weight = new Float64Array(this.length);
    for (let place = 0; place < this.length; place += 1) weight[place] = this.weight[place] * scale[this.row[place]];
    return this.with({ weight });
  }

  with(parts) {
    const { row, channel, y, x, weight } = { ...this, ...parts };
    return new Entries(row, channel, y, x, weight);
  }
}

const SOFTMAX = ["softmax", "log_softmax"];

export const isWhole = (layer) => Boolean(layer.work);

/** All values that a step reads. */
export const readsOf = ({ input, residual, work }) => [input, residual, work?.other].filter(Boolean);

/** The layers without channels that are always zero and channels that are never read. */
export function withoutDeadChannels(network) {
  return withoutUnread(network, withoutZeros(network));
}

function flags(network) {
  const made = new Map();
  return (name) => {
    if (!made.has(name)) made.set(name, new Uint8Array(network.shapes.get(name)[0]));
    return made.get(name);
  };
}

function withoutZeros(network) {
  const zero = flags(network);
  return network.layers.map((layer) => {
    const source = zero(layer.input);
    const entries = layer.entries?.where((place) => !source[layer.entries.channel[place]]);
    const less = entries ? { ...layer, entries } : layer;
    markZeroRows(less, zero);
    return less;
  });
}

function markZeroRows(layer, zero) {
  if (SOFTMAX.includes(layer.kind) || isWhole(layer)) return;
  const [source, known] = [zero(layer.input), zero(layer.output)];
  if (!layer.entries) {
    for (const row of layer.rows) known[row] = source[row];
    return;
  }
  const read = new Uint8Array(known.length);
  for (const row of layer.entries.row) read[row] = 1;
  const residual = layer.residual && zero(layer.residual);
  for (const row of layer.rows)
    known[row] = !read[row] && (!residual || residual[row]) && isNothing(layer, row) ? 1 : 0;
}

/** Whether what is added to a row is zero everywhere, once it is activated. */
function isNothing(layer, row) {
  const activated = (sum) => {
    if (layer.clip) return Math.min(Math.max(sum, layer.clip[0]), layer.clip[1]) === 0;
    return (layer.relu ? Math.max(sum, 0) : sum) === 0;
  };
  if (!layer.plane) return activated(layer.bias[row]);
  const size = layer.plane.length / layer.bias.length;
  return layer.plane.subarray(row * size, (row + 1) * size).every((each) => activated(layer.bias[row] + each));
}

function withoutUnread(network, layers) {
  const read = flags(network);
  read(network.output).fill(1);
  const kept = [];
  for (const layer of [...layers].reverse()) {
    const wanted = read(layer.output);
    const rows = layer.rows.filter((row) => wanted[row]);
    if (!rows.length) continue;
    if (isWhole(layer)) {
      for (const name of readsOf(layer)) read(name).fill(1);
      kept.push(layer);
      continue;
    }
    const entries = layer.entries?.where((place) => wanted[layer.entries.row[place]]);
    const source = read(layer.input);
    for (const channel of entries ? entries.channel : rows) source[channel] = 1;
    if (layer.residual) for (const row of rows) read(layer.residual)[row] = 1;
    kept.push({ ...layer, rows, entries });
  }
  return kept.reverse();
}

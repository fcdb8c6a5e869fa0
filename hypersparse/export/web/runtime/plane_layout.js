// How values lie in memory: planes of rows with zeros between them, so that every tap is a constant offset.
//
// A convolution sums its input at constant distances from the output position, over a whole plane in one run. Its input
// and output therefore have the same pitch, the distance between two rows. Between planes and rows there are as many zeros
// as a tap reaches over the edge. A convolution with a stride reads phases: every stride-th row and column, copied to
// planes of their own.

import { NetworkError } from "./errors.js";
import { INPUT } from "./file.js";
import { readsOf } from "./layers.js";

const VECTOR = 4; // floats
// whose output lies as their input does
const ALIKE = ["elementwise", "arithmetic", "layer_norm", "group_norm", "softmax_planes", "reduce"];
const MOST_FLOATS = 2 ** 26; // of a workspace, 256 MB

const roundUp = (count) => Math.ceil(count / VECTOR) * VECTOR;

/** Steps without strides, the layout and address of every value, and the size of the workspace. */
export function place(network) {
  const { steps, shapes } = withoutStrides(network);
  const values = layouts(network, steps, shapes);
  const { at, floats } = planMemory(network, steps, values);
  if (floats > MOST_FLOATS) {
    throw new NetworkError(`The network needs a workspace of ${floats} numbers, and ${MOST_FLOATS} are the most.`);
  }
  return { steps, values, at, floats };
}

/** Taps as distances from the output's position; with a stride, within the phase that they read. */
function withoutStrides(network) {
  const shapes = new Map(network.shapes);
  const phases = phasesOf(network);
  const done = new Set();
  const steps = [];
  for (const layer of network.layers) {
    if (layer.kind !== "conv") {
      steps.push(layer);
      continue;
    }
    const split = phases.get(keyOf(layer));
    if (!split) {
      const distances = { y: distancesOf(layer, 0), x: distancesOf(layer, 1) };
      steps.push({ ...layer, entries: layer.entries.with(distances) });
      continue;
    }
    if (!done.has(split)) {
      done.add(split);
      shapes.set(split.output, split.shape);
      steps.push(split);
    }
    steps.push({ ...layer, input: split.output, entries: entriesOfPhases(layer, split) });
  }
  return { steps, shapes };
}

const keyOf = (layer) => `${layer.input} ${layer.stride}`;
const isStrided = (layer) => layer.kind === "conv" && (layer.stride[0] > 1 || layer.stride[1] > 1);

function distancesOf(layer, axis) {
  const taps = axis ? layer.entries.x : layer.entries.y;
  return taps.map((tap) => tap * layer.dilation[axis] - layer.padding[axis]);
}

/** The phase that each entry reads, by its first position (-1 outside the plane), and the distance inside it. */
function phaseOf(layer, [, height, width]) {
  const [strideY, strideX] = layer.stride;
  const [y, x] = [distancesOf(layer, 0), distancesOf(layer, 1)];
  return (place) => {
    const shift = [Math.floor(y[place] / strideY), Math.floor(x[place] / strideX)];
    const [row, column] = [y[place] - shift[0] * strideY, x[place] - shift[1] * strideX];
    const inside = row < height && column < width;
    return { at: inside ? (layer.entries.channel[place] * height + row) * width + column : -1, shift };
  };
}

/** The copies of phases that all layers need, by value and stride. */
function phasesOf(network) {
  const found = new Map();
  for (const layer of network.layers.filter(isStrided)) {
    const shape = network.shapes.get(layer.input);
    const wanted = found.get(keyOf(layer)) ?? new Set();
    const read = phaseOf(layer, shape);
    for (let place = 0; place < layer.entries.length; place += 1) wanted.add(read(place).at);
    found.set(keyOf(layer), wanted.add(-1));
  }
  const splits = new Map();
  for (const layer of network.layers.filter(isStrided)) {
    const key = keyOf(layer);
    if (splits.has(key)) continue;
    const source = network.shapes.get(layer.input);
    const places = Float64Array.from(found.get(key)).sort().subarray(1);
    const sides = [0, 1].map((axis) => Math.ceil(source[axis + 1] / layer.stride[axis]));
    const number = new Map([...places].map((at, place) => [at, place]));
    const shape = [Math.max(places.length, 1), ...sides];
    splits.set(key, {
      kind: "split",
      name: "phases",
      input: layer.input,
      output: `${key} phases`,
      places,
      number,
      source,
      shape,
      stride: layer.stride,
    });
  }
  return splits;
}

function entriesOfPhases(layer, split) {
  const read = phaseOf(layer, split.source);
  const inside = layer.entries.where((place) => read(place).at >= 0);
  const again = phaseOf({ ...layer, entries: inside }, split.source);
  const found = Array.from(inside.row, (_, place) => again(place));
  return inside.with({
    channel: Int32Array.from(found, ({ at }) => split.number.get(at)),
    y: Int32Array.from(found, ({ shift }) => shift[0]),
    x: Int32Array.from(found, ({ shift }) => shift[1]),
  });
}

/** Values that must have the same pitch. */
class Groups {
  parents = new Map();

  find(name) {
    let root = name;
    while ((this.parents.get(root) ?? root) !== root) root = this.parents.get(root);
    this.parents.set(name, root);
    return root;
  }

  join(first, second) {
    this.parents.set(this.find(first), this.find(second));
  }
}

/** The largest number of positions read beyond the edges of each value. */
function reachesOf(steps, shapes) {
  const reaches = new Map([...shapes.keys()].map((name) => [name, { rows: 0, columns: 0 }]));
  for (const layer of steps) {
    if (layer.kind !== "conv") continue;
    const reach = reaches.get(layer.input);
    const [[, height, width], [, outHeight, outWidth]] = [shapes.get(layer.input), shapes.get(layer.output)];
    for (let place = 0; place < layer.entries.length; place += 1) {
      const [y, x] = [layer.entries.y[place], layer.entries.x[place]];
      reach.rows = Math.max(reach.rows, -y, y + outHeight - height);
      reach.columns = Math.max(reach.columns, -x, x + outWidth - width);
    }
  }
  return reaches;
}

function layouts(network, steps, shapes) {
  const [groups, reaches, members] = [new Groups(), reachesOf(steps, shapes), new Map()];
  for (const layer of steps) {
    if (layer.residual) groups.join(layer.residual, layer.output);
    if (layer.kind === "conv" || ALIKE.includes(layer.kind)) groups.join(layer.input, layer.output);
  }
  for (const name of shapes.keys()) {
    const root = groups.find(name);
    members.set(root, [...(members.get(root) ?? []), name]);
  }
  const values = new Map();
  for (const [root, names] of members) {
    const most = (measure) =>
      names.reduce((all, name) => Math.max(all, measure(shapes.get(name), reaches.get(name))), 0);
    const pitch = most(([, , width], reach) => width + reach.columns);
    const lines = most(([, height], reach) => height + reach.rows);
    const furthest = most((_, reach) => reach.rows * pitch + reach.columns);
    const shared = {
      group: root,
      pitch,
      plane: names.every((name) => network.vectors.has(name)) ? 1 : roundUp(lines * pitch),
      margin: roundUp(furthest + pitch) + 2 * VECTOR,
      padded: most((_, reach) => reach.rows + reach.columns) > 0,
    };
    for (const name of names) {
      const [channels, height, width] = shapes.get(name);
      values.set(name, { ...shared, channels, height, width, run: (height - 1) * pitch + width });
    }
  }
  return values;
}

/** The address of each value. After its last use a block is free for the next value of the same layout. */
function planMemory(network, steps, values) {
  const [at, free, last] = [new Map(), new Map(), new Map([[network.output, steps.length]])];
  let floats = 0;
  steps.forEach((step, number) => {
    for (const name of readsOf(step)) last.set(name, Math.max(number, last.get(name) ?? 0));
  });
  const keyFor = (name) => {
    const { group, channels, height, width } = values.get(name);
    return [group, channels, height, width].join();
  };
  const reserve = (name, isPrivate) => {
    if (at.has(name)) return;
    const kept = free.get(keyFor(name));
    if (!isPrivate && kept?.length) {
      at.set(name, kept.pop());
      return;
    }
    const value = values.get(name);
    at.set(name, floats + value.margin);
    floats += 2 * value.margin + roundUp(value.channels * value.plane);
  };
  const ending = new Map();
  for (const [name, number] of last) ending.set(number, [...(ending.get(number) ?? []), name]);
  const taken = new Set(); // values whose block another value uses now, and phases, which do not write all zeros
  reserve(INPUT, false);
  steps.forEach((step, number) => {
    const { residual } = step;
    if (residual && residual !== step.input && !at.has(step.output) && last.get(residual) === number) {
      at.set(step.output, at.get(residual));
      taken.add(residual);
    }
    reserve(step.output, step.kind === "split");
    if (step.kind === "split") taken.add(step.output);
    for (const name of ending.get(number) ?? []) {
      if (!taken.has(name)) free.set(keyFor(name), [...(free.get(keyFor(name)) ?? []), at.get(name)]);
    }
  });
  return { at, floats };
}

// Layers of whole values as steps of the kernel: runs of floats, strides and constants in tables.

const NONE = -1;
const VECTOR = 4; // floats
const SAMPLED = 4096; // moves that tell the usual stride of runs

/** The offsets of elements from the first one, by their positions in the value's dense order. */
function addresses(value, places) {
  const { height, width, pitch, plane } = value;
  const size = height * width;
  return places.map((at) => {
    const inside = at % size;
    return Math.floor(at / size) * plane + Math.floor(inside / width) * pitch + (inside % width);
  });
}

const countTo = (length) => Int32Array.from({ length }, (_, place) => place);
const all = (value) => addresses(value, countTo(value.channels * value.height * value.width));

/** Runs in which each operand advances evenly: their starts and lengths as a table, and strides. */
function runsOf(operands) {
  const strides = operands.map((each, place) => (place ? usual(each) : 1));
  const [{ length }] = operands;
  const isBroken = (at) => operands.some((each, place) => each[at] - each[at - 1] !== strides[place]);
  const starts = [];
  for (let at = 0; at < length; at += 1) if (!at || isBroken(at)) starts.push(at);
  const width = operands.length + 1;
  const table = new Int32Array(starts.length * width);
  starts.forEach((at, row) => {
    operands.forEach((each, place) => (table[row * width + place] = each[at]));
    table[row * width + width - 1] = (starts[row + 1] ?? length) - at;
  });
  return { table, rows: starts.length, strides };
}

function usual(places) {
  const counts = new Map();
  for (let at = 1; at < Math.min(places.length, SAMPLED); at += 1) {
    const move = places[at] - places[at - 1];
    counts.set(move, (counts.get(move) ?? 0) + 1);
  }
  return [...counts].reduce((best, each) => (each[1] > best[1] ? each : best), [1, 0])[0];
}

/** Entries as the kernel has them: offset and weight. */
function pairsOf(offsets, weights) {
  const pairs = new Int32Array(2 * offsets.length);
  const floats = new Float32Array(pairs.buffer);
  offsets.forEach((offset, place) => {
    pairs[2 * place] = offset;
    floats[2 * place + 1] = weights[place];
  });
  return pairs;
}

/** The words of a step of whole values; `valueOf` and `addressOf` tell where values lie. */
export function valueWords(step, tables, valueOf, addressOf) {
  const rule = RULES[step.kind];
  return rule({ ...step, before: valueOf(step.input), after: valueOf(step.output), tables, valueOf, addressOf });
}

function constants(tables, values) {
  return { plane: tables.add(values), plane_size: values.length };
}

function copy({ work, before, after, tables }) {
  const { constant } = work;
  let targets = work.targets ? addresses(after, work.targets) : all(after);
  let sources = constant ? work.places : addresses(before, work.places);
  if (work.targets) {
    const order = countTo(targets.length).sort((one, two) => targets[one] - targets[two]);
    [targets, sources] = [targets, sources].map((each) => order.map((place) => each[place]));
  }
  const { table, rows, strides } = runsOf([targets, sources]);
  const words = { rows, channels: tables.add(table), stride_x: strides[1] };
  return constant ? { ...words, ...constants(tables, constant) } : words;
}

function elementwise({ work, before, after, tables }) {
  const isAlike = before.plane === after.plane && before.pitch === after.pitch; // what pads it stays zero
  const whole = Int32Array.of(0, 0, (before.channels - 1) * before.plane + before.run);
  const found = work.keepsZero && isAlike ? { table: whole, rows: 1 } : runsOf([all(after), all(before)]);
  const bias = tables.add(Float32Array.of(work.parameter));
  return { rows: found.rows, channels: tables.add(found.table), kernel_y: work.number, bias };
}

function arithmetic({ work, before, after, tables, valueOf, addressOf }) {
  const { constant, other, places } = work;
  const second = constant ? places : addresses(valueOf(other), places);
  const { table, rows, strides } = runsOf([all(after), all(before), second]);
  const words = {
    rows,
    channels: tables.add(table),
    kernel_y: work.number,
    stride_y: strides[1],
    stride_x: strides[2],
  };
  return { ...words, ...(constant ? constants(tables, constant) : { residual: addressOf(other) }) };
}

/** The run of positions of a plane, and a mask without what pads it. */
function positions({ height, width, pitch, run }, tables) {
  if (height === 1 || width === pitch) return { segment_length: run, mask: NONE };
  const mask = Int32Array.from({ length: Math.ceil(run / VECTOR) * VECTOR }, (_, at) =>
    at % pitch < width && at < run ? -1 : 0,
  );
  return { segment_length: run, mask: tables.add(mask) };
}

function norm({ work, before, tables }) {
  const pairs = new Float32Array(2 * work.gain.length);
  work.gain.forEach((gain, place) => pairs.set([gain, work.shift[place]], 2 * place));
  return {
    rows: before.channels,
    groups: work.channels,
    bias: tables.add(pairs),
    clip: tables.add(Float32Array.of(work.epsilon, 0)),
    ...positions(before, tables),
  };
}

const planes = ({ work, before, tables }) => ({
  rows: before.channels,
  groups: work.channels,
  kernel_y: work.number ?? 0,
  ...positions(before, tables),
});

function matmul({ work, before, tables, valueOf, addressOf }) {
  const { first, second, rows, terms, length } = work;
  const two = valueOf(work.other);
  const starts = [addresses(before, first.batches), addresses(two, second.batches)];
  const batches = new Int32Array(2 * starts[0].length);
  starts.forEach((each, place) => each.forEach((at, batch) => (batches[2 * batch + place] = at)));
  const apart = (value, at, stride) => {
    const [from, to] = addresses(value, Int32Array.of(at, at + stride));
    return to - from;
  };
  return {
    residual: addressOf(work.other),
    rows,
    groups: terms,
    segment_length: length,
    segments: starts[0].length,
    channels: tables.add(batches),
    stride_y: apart(before, first.batches[0], first.row),
    stride_x: apart(before, first.batches[0], first.column),
    segment_stride: apart(two, second.batches[0], second.row),
    bias: tables.add(Float32Array.of(work.scale)),
  };
}

function embedding({ work, before, after, tables }) {
  const words = { rows: after.channels, groups: work.rows, segment_length: work.places.length };
  return { ...words, channels: tables.add(addresses(before, work.places)), ...constants(tables, work.weight) };
}

function resample({ work, before, after, tables }) {
  const one = { ...after, channels: 1 };
  return {
    rows: before.channels,
    channels: tables.add(all(one)),
    segment_length: after.height * after.width,
    starts: tables.add(work.starts),
    entries: tables.add(pairsOf(addresses(before, work.source), work.weight)),
  };
}

function recurrent({ work, before, after, tables }) {
  const { row, channel, weight } = work.entries; // in the order of rows
  const starts = new Int32Array(before.channels + 1);
  for (const each of row) starts[each + 1] += 1;
  for (let at = 1; at < starts.length; at += 1) starts[at] += starts[at - 1];
  return {
    rows: after.channels,
    segment_length: after.width,
    stride_x: work.reverse,
    starts: tables.add(starts),
    entries: tables.add(pairsOf(channel.map((each) => each * after.plane), weight)), // prettier-ignore
    bias: tables.add(Float32Array.from(work.bias)),
    groups: before.channels / after.channels,
  };
}

const RULES = {
  copy,
  elementwise,
  arithmetic,
  layer_norm: norm,
  group_norm: norm,
  matmul,
  softmax_planes: planes,
  reduce: planes,
  embedding,
  resample,
  lstm: recurrent,
  gru: recurrent,
};

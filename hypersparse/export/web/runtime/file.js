// `.hsp` files: a network in one small file, read without running anything in it. docs/deploy.md describes the format.

import { isTable, own, parsed, sectionsOf, whole } from "./container.js";
import { FileError } from "./errors.js";
import { inflate } from "./inflate.js";
import { COLUMNS, decode, Layout, MOST_BITS, PLAIN } from "./positions.js";

export const INPUT = "input"; // name of the value that a network is given
const HALF = "half"; // float32 kept as float16
const ROWS = "int8_rows"; // float32 kept as int8 and, behind all values, a scale for each row of the first axis
const SCALE = 2; // bytes: the upper half of a float32
const [LEAST_SCALE, MOST_SCALE] = [2 ** -126, 2 ** 120];
// prettier-ignore
const DTYPES = [["float32", 4], [HALF, 2], ["float64", 8], ["float16", 2], ["int64", 8], ["int32", 4], ["int16", 2], ["int8", 1], ["uint8", 1], ["bool", 1], [ROWS, 1]];
const READABLE = ["float32", HALF, "float64", "float16", ROWS]; // by this runtime; batch norms also count in int64
const DENSE = -1; // in place of a count: every element is stored
const SMALL = 2 ** 20;
const MOST_GRAPH = 2 ** 22; // bytes of its JSON
const MOST_SYMBOLS = 2 ** 22; // positions that are decoded,
const MOST_SYMBOLS_PER_BYTE = 4; // and in files larger than SMALL
const FEW_WEIGHTS = 2 ** 22; // what a file may claim to hold
const MOST_WEIGHTS_PER_BYTE = 4096;
const MOST_VALUES = 2 ** 29; // bytes of nonzero values
const MOST_SIDES = 8;
const MOST_ELEMENTS = 2 ** 48;
const NAME = /^[A-Za-z0-9_.~-]{1,512}$/;

/**
 * The network in the bytes of a file: `input` (its shape), `nodes`, `arrays` and `about`.
 * An array has a `shape`, the `values` that are stored, and their `positions`; null: all are.
 */
export async function readGraph(bytes) {
  if (!(bytes instanceof Uint8Array)) throw new TypeError("A network is read from a Uint8Array.");
  try {
    return await unpacked(bytes);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    throw new FileError(`This is not a whole .hsp file (${error.message}); copy or export it again.`);
  }
}

async function unpacked(bytes) {
  const { sections, about } = sectionsOf(bytes);
  const text = parsed(await inflate(sections.graph, MOST_GRAPH), "its graph");
  const entries = listOf(text, "arrays").map(entryOf);
  const nodes = listOf(text, "nodes").map((row, place) => nodeOf(row, place, entries));
  const input = shapeOf(own(text, "input"), 1);
  const lengths = listOf(text, "strings").map(whole);
  checkClaims(entries, bytes.length);
  return { input, nodes, arrays: await arraysOf(entries, sections, lengths), about };
}

function listOf(table, name) {
  const value = own(table, name);
  if (!Array.isArray(value)) throw new FileError(`its graph has no list \`${name}\``);
  return value;
}

function named(name) {
  if (typeof name === "string" && NAME.test(name)) return name;
  throw new FileError(
    `'${String(name).slice(0, 40)}' is no name: names have 1 to 512 of the characters A-Z, a-z, 0-9 and _.~-`,
  );
}

function shapeOf(sides, least) {
  if (!Array.isArray(sides)) throw new FileError("a shape is not a list");
  sides.forEach(whole);
  const fits = sides.length <= MOST_SIDES && sides.every((side) => side >= least);
  if (fits && sides.reduce((all, side) => all * side, 1) < MOST_ELEMENTS) return sides;
  throw new FileError(`a shape (${sides.slice(0, MOST_SIDES).join(", ")}) cannot be one of an array`);
}

function entryOf(row) {
  if (!Array.isArray(row) || row.length < 4) throw new FileError("its graph has an array without a type");
  const [name, sides, type, kept, layout, bits] = row;
  const shape = shapeOf(sides, 0);
  const [dtype, width] = DTYPES[whole(type)] ?? [];
  if (!dtype) throw new FileError(`the array \`${named(name)}\` has an unknown type`);
  if (dtype === ROWS && (shape.length < 2 || shape.includes(0))) {
    throw new FileError(`the array \`${named(name)}\` has no rows that scales could be for`);
  }
  const dense = kept === DENSE;
  const coded = dense ? new Layout(shape, 0, PLAIN, 0) : codedAs(named(name), shape, [kept, layout, bits]);
  return { name: named(name), dtype, width, dense, layout: coded, stored: dense ? coded.size : kept };
}

function codedAs(name, shape, numbers) {
  const [kept, layout, bits] = numbers.map(whole);
  const size = shape.reduce((all, side) => all * side, 1);
  if (kept <= size && layout <= COLUMNS && bits <= MOST_BITS && (layout === PLAIN || shape.length > 1)) {
    return new Layout(shape, kept, layout, bits);
  }
  throw new FileError(`the array \`${name}\` has a wrong count or layout`);
}

function nodeOf(row, place, entries) {
  const [op, inputs, tensors, options] = Array.isArray(row) ? row : [];
  if (typeof op !== "string" || !Array.isArray(inputs) || !isTable(tensors) || !isTable(options)) {
    throw new FileError("a node has no operation");
  }
  [op, ...Object.keys(tensors), ...Object.keys(options)].forEach(named);
  const arrays = Object.entries(tensors).map(([role, number]) => {
    if (!entries[whole(number)]) throw new FileError(`a node reads an array ${number} that is not there`);
    return [role, entries[number].name];
  });
  return {
    op,
    inputs: inputs.map((number) => valueOf(whole(number))),
    output: valueOf(place + 1),
    tensors: new Map(arrays),
    options,
  };
}

const valueOf = (number) => (number === 0 ? INPUT : `v${number}`);

function checkClaims(entries, size) {
  if (new Set(entries.map((entry) => entry.name)).size !== entries.length) {
    throw new FileError("two of its arrays have one name");
  }
  const claimed = sum(entries, (entry) => entry.layout.size);
  const most = FEW_WEIGHTS + MOST_WEIGHTS_PER_BYTE * size;
  if (claimed > most) throw new FileError(`it claims ${claimed} weights in ${size} bytes, and ${most} are the most`);
  const symbols = sum(entries, (entry) => (entry.dense ? 0 : entry.layout.rows + entry.layout.coded));
  if (symbols > MOST_SYMBOLS + MOST_SYMBOLS_PER_BYTE * Math.max(0, size - SMALL)) {
    throw new FileError(`it claims ${symbols} positions in ${size} bytes`);
  }
  const bytes = sum(entries, bytesOf);
  if (bytes > MOST_VALUES) throw new FileError(`it claims ${bytes} bytes of values, and ${MOST_VALUES} are the most`);
}

const rowsOf = (entry) => (entry.dtype === ROWS ? entry.layout.shape[0] : 0);
const bytesOf = (entry) => entry.stored * entry.width + rowsOf(entry) * SCALE;
const sum = (list, measure) => list.reduce((all, each) => all + measure(each), 0);

async function arraysOf(entries, sections, lengths) {
  const [values, scales] = await valuesOf(entries, sections.values);
  if (lengths.length !== 4 || sum(lengths, (length) => length) !== sections.positions.length) {
    throw new FileError("its positions are cut off");
  }
  let at = 0;
  const strings = lengths.map((length) => sections.positions.subarray(at, (at += length)));
  const sparse = entries.filter((entry) => !entry.dense);
  const positions = decode(
    sparse.map((entry) => entry.layout),
    strings,
  );
  const found = new Map(sparse.map((entry, place) => [entry.name, positions[place]]));
  for (const [name, rows] of scales) scale(values.get(name), found.get(name), rows);
  return new Map(
    entries.map(({ name, layout, dtype }) => [
      name,
      { shape: layout.shape, dtype, values: values.get(name), positions: found.get(name) ?? null },
    ]),
  );
}

/** Multiply the steps of an array in place; each row has a size of its steps. */
function scale(steps, positions, { sizes, length }) {
  for (let i = 0; i < steps.length; i += 1) steps[i] *= sizes[Math.floor((positions ? positions[i] : i) / length)];
}

/** The stored values of each array: all first bytes, all second bytes and so on, type by type; and scales of rows. */
async function valuesOf(entries, deflated) {
  const content = await inflate(deflated, sum(entries, bytesOf), true);
  const values = new Map();
  let start = 0;
  for (const [dtype, width] of DTYPES) {
    const mine = entries.filter((entry) => entry.dtype === dtype);
    const count = sum(mine, (entry) => entry.stored);
    let place = 0;
    for (const entry of mine) {
      const planes = { content, start: start + place, stride: count, width, count: entry.stored };
      values.set(entry.name, READABLE.includes(dtype) ? numbersOf(planes) : null);
      place += entry.stored;
    }
    start += count * width;
  }
  return [values, scalesOf(entries, content.subarray(start))];
}

function scalesOf(entries, content) {
  const scales = new Map();
  const [count, view] = [content.length / SCALE, new DataView(new ArrayBuffer(4))];
  let place = 0;
  for (const entry of entries.filter(rowsOf)) {
    const sizes = Float64Array.from({ length: rowsOf(entry) }, () => {
      view.setUint16(2, content[place] + 256 * content[count + place], true);
      place += 1;
      return view.getFloat32(0, true);
    });
    if (!sizes.every((size) => size >= LEAST_SCALE && size <= MOST_SCALE)) {
      throw new FileError(`a scale of the array \`${entry.name}\` is not one`);
    }
    scales.set(entry.name, { sizes, length: entry.layout.size / sizes.length });
  }
  return scales;
}

function numbersOf({ content, start, stride, width, count }) {
  const found = new Float64Array(count);
  if (width === 1) return found.map((_, i) => stepsOf(content[start + i]));
  const view = new DataView(new ArrayBuffer(8));
  for (let i = 0; i < count; i += 1) {
    for (let byte = 0; byte < width; byte += 1) view.setUint8(byte, content[start + byte * stride + i]);
    found[i] =
      width === 4 ? view.getFloat32(0, true) : width === 8 ? view.getFloat64(0, true) : half(view.getUint16(0, true));
  }
  return found;
}

function stepsOf(byte) {
  if (byte === 128) throw new FileError("a weight has more steps than its scale is for");
  return byte < 128 ? byte : byte - 256;
}

function half(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size =
    exponent === 31
      ? fraction
        ? NaN
        : Infinity
      : exponent
        ? 2 ** (exponent - 15) * (1 + fraction / 1024)
        : 2 ** -24 * fraction;
  return bits >> 15 ? -size : size;
}

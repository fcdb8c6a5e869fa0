// The outer form of a `.hsp` file: a safetensors file of three tensors of bytes, with a digest over all of it.
// Nothing that stands in a file is believed.

import { FileError } from "./errors.js";
import { sha256 } from "./sha256.js";

const FORMAT = "hypersparse";
const VERSION = "1";
export const SECTIONS = ["graph", "positions", "values"];
const MOST_HEADER = 2 ** 24; // bytes

/** The parts of a file and what it says about itself. */
export function sectionsOf(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const length = content.length < 8 ? Infinity : view.getUint32(0, true) + 2 ** 32 * view.getUint32(4, true);
  if (length > Math.min(MOST_HEADER, content.length - 8)) {
    throw new FileError("its header is cut off or not that of a safetensors file");
  }
  const header = parsed(content.subarray(8, 8 + length), "its header");
  const metadata = own(header, "__metadata__");
  if (!isTable(metadata) || own(metadata, "format") !== FORMAT) throw new FileError("it is a file of another kind");
  if (own(metadata, "version") !== VERSION) {
    throw new FileError(`it has the version ${own(metadata, "version")}, and this program reads ${VERSION}`);
  }
  const sections = {};
  let start = 8 + length;
  const first = start;
  for (const name of SECTIONS) {
    const end = first + endOf(own(header, name), start - first);
    sections[name] = content.subarray(start, end);
    start = end;
  }
  if (start !== content.length || Object.keys(header).length !== SECTIONS.length + 1) {
    throw new FileError(`it should hold ${start - first} bytes behind its header and holds ${content.length - first}`);
  }
  const about = own(metadata, "about");
  if (typeof about !== "string" || own(metadata, "digest") !== digest(sections, about)) {
    throw new FileError("its bytes are not those that were written");
  }
  return { sections, about: parsed(new TextEncoder().encode(about), "its metadata") };
}

function endOf(entry, start) {
  if (!isTable(entry) || own(entry, "dtype") !== "U8") {
    throw new FileError("its header does not list the parts of a network");
  }
  const [places, shape] = [own(entry, "data_offsets"), own(entry, "shape")];
  if (!Array.isArray(places) || places.length !== 2 || !Array.isArray(shape) || shape.length !== 1) {
    throw new FileError("its header has a part without a place");
  }
  const [begin, end] = places.map(whole);
  if (begin !== start || shape[0] !== end - begin) throw new FileError("its header has parts that overlap");
  return end;
}

function digest(sections, about) {
  const parts = [new TextEncoder().encode(about)];
  for (const name of SECTIONS) {
    const length = new DataView(new ArrayBuffer(8));
    length.setUint32(0, sections[name].length, true);
    parts.push(new Uint8Array(length.buffer), sections[name]);
  }
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
  return sha256(all).slice(0, 32);
}

/** A whole number of a file, which is not negative. */
export function whole(number) {
  if (!Number.isSafeInteger(number) || number < 0) {
    throw new FileError(`'${String(number).slice(0, 40)}' stands where a whole number should`);
  }
  return number;
}

/** A table in JSON; `what` names it in the sentence for one that is not. */
export function parsed(bytes, what) {
  let value;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    throw new FileError(`${what} is not JSON`);
  }
  if (!isTable(value)) throw new FileError(`${what} is not a table`);
  return value;
}

export const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** A table's own value of that name: names such as `constructor` are in every table. */
export const own = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);

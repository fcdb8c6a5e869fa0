// Where arrays are not zero: gaps between positions as Rice codes, a unary part and some low bits in strings of their own.

import { product } from "./checks.js";
import { FileError } from "./errors.js";

export const PLAIN = 0;
export const COLUMNS = 2; // the first two axes swapped; 1 is by rows
export const MOST_BITS = 40; // of a gap's low part
const RICE = [9, 13]; // a gap of mean m takes the largest b with 2 ** b <= m * 9 / 13

/** How the positions in one array are coded: what a decoder must know besides the bytes. */
export class Layout {
  constructor(shape, kept, layout, bits) {
    Object.assign(this, { shape, kept, layout, bits, size: product(shape) });
    this.rows = layout === PLAIN ? 0 : shape[layout - 1];
    this.coded = Math.min(kept, this.size - kept);
  }
}

/** The positions of each layout in C order, as sorted arrays. */
export function decode(layouts, strings) {
  const counter = new Rice(strings[0], strings[1]);
  const counts = layouts.map((each) => Float64Array.from({ length: each.rows }, () => counter.next(each.bits)));
  counter.end();
  const gaps = new Rice(strings[2], strings[3]);
  const found = layouts.map((each, place) => positions(each, counts[place], gaps));
  gaps.end();
  return found;
}

const few = () => new FileError("the coded positions are fewer or more than there should be");

class Rice {
  constructor(unary, low) {
    [this.unary, this.low, this.at, this.lowAt] = [unary, low, 0, 0];
  }

  next(bits) {
    const began = this.at;
    const end = 8 * this.unary.length;
    while (this.at < end && !((this.unary[this.at >> 3] >> (7 - (this.at & 7))) & 1)) this.at += 1;
    if (this.at === end || this.lowAt + bits > 8 * this.low.length) throw few();
    let symbol = this.at - began;
    this.at += 1;
    for (let i = 0; i < bits; i += 1, this.lowAt += 1) {
      symbol = 2 * symbol + ((this.low[this.lowAt >> 3] >> (7 - (this.lowAt & 7))) & 1);
    }
    return symbol;
  }

  /** Nothing more is coded, but for the rest of a byte. */
  end() {
    for (; this.at < 8 * this.unary.length; this.at += 1) {
      if ((this.unary[this.at >> 3] >> (7 - (this.at & 7))) & 1) throw few();
    }
    if (this.low.length !== Math.ceil(this.lowAt / 8)) throw few();
  }
}

function positions(layout, counts, gaps) {
  const coded = layout.layout === PLAIN ? plain(layout, gaps) : byRows(layout, counts, gaps);
  const places = layout.layout === COLUMNS ? swapped(coded, layout.shape) : coded;
  return layout.kept === layout.coded ? places : others(places, layout.size);
}

function plain(layout, gaps) {
  const found = new Float64Array(layout.coded);
  let at = -1;
  for (let i = 0; i < found.length; i += 1) found[i] = at += gaps.next(layout.bits) + 1;
  if (at >= layout.size) throw outside();
  return found;
}

const outside = () => new FileError("a position lies outside its array");

function byRows(layout, counts, gaps) {
  const length = layout.rows ? layout.size / layout.rows : 0;
  if (counts.reduce((sum, count) => sum + count, 0) !== layout.coded || counts.some((count) => count > length)) {
    throw new FileError("counts of rows do not add up");
  }
  const found = new Float64Array(layout.coded);
  let place = 0;
  counts.forEach((count, row) => {
    const bits = bitsOf(count, length);
    let at = -1;
    for (let i = 0; i < count; i += 1) {
      at += gaps.next(bits) + 1;
      found[place++] = row * length + at;
    }
    if (at >= length) throw outside();
  });
  return found;
}

function bitsOf(count, length) {
  let bits = 0;
  for (let step = 1; 2 ** (step - 1) <= length; step += 1) bits += count * RICE[1] * 2 ** step <= length * RICE[0];
  return bits;
}

/** Positions of an array whose first two axes were swapped, in order. */
function swapped(positions, shape) {
  const [rows, columns] = shape;
  const inner = product(shape.slice(2));
  const moved = positions.map((at) => {
    const cell = Math.floor(at / inner);
    return ((cell % rows) * columns + Math.floor(cell / rows)) * inner + (at % inner);
  });
  return moved.sort();
}

function others(positions, size) {
  const found = new Float64Array(size - positions.length);
  let [next, place] = [0, 0];
  for (let at = 0; at < size; at += 1) {
    if (positions[next] === at) next += 1;
    else found[place++] = at;
  }
  return found;
}

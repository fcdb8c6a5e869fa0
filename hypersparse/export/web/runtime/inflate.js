// Inflating zlib streams (RFC 1950, RFC 1951) up to a size that is known before. DecompressionStream would write as much
// as a stream claims, and old browsers lack it.

import { FileError } from "./errors.js";

const LENGTHS = [
  3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258,
];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const MAX_BITS = 15; // of a code
const ADLER = 65521;

const broken = () => new FileError("a part of it does not inflate");
const wrongSize = () => new FileError("a part of it inflates to another size than it should");

/** What was deflated: `most` bytes at most, and exactly as many with `exact`. */
export function inflate(deflated, most, exact = false) {
  const stream = new Stream(deflated, most);
  const [method, flags] = [stream.byte(), stream.byte()];
  if ((method & 15) !== 8 || method >> 4 > 7 || flags & 32 || (256 * method + flags) % 31) throw broken();
  while (!stream.block());
  stream.endByte();
  const content = stream.content();
  let expected = 0;
  for (let i = 0; i < 4; i += 1) expected = 256 * expected + stream.byte();
  if (expected !== adler32(content)) throw broken();
  if (stream.at !== deflated.length || (exact && content.length < most)) throw wrongSize();
  return content;
}

function adler32(content) {
  let [low, high] = [1, 0];
  for (let start = 0; start < content.length; start += 4096) {
    const end = Math.min(start + 4096, content.length);
    for (let i = start; i < end; i += 1) {
      low += content[i];
      high += low;
    }
    low %= ADLER;
    high %= ADLER;
  }
  return high * 65536 + low;
}

/** Canonical Huffman codes: how many have each length, and their symbols in order. */
class Codes {
  constructor(lengths) {
    this.counts = new Uint16Array(MAX_BITS + 1);
    for (const length of lengths) this.counts[length] += 1;
    this.counts[0] = 0;
    const places = new Uint16Array(MAX_BITS + 2);
    let left = 1;
    for (let bits = 1; bits <= MAX_BITS; bits += 1) {
      left = 2 * left - this.counts[bits];
      if (left < 0) throw broken(); // more codes than there can be
      places[bits + 1] = places[bits] + this.counts[bits];
    }
    this.symbols = new Uint16Array(lengths.length);
    lengths.forEach((length, symbol) => {
      if (length) this.symbols[places[length]++] = symbol;
    });
  }
}

class Stream {
  constructor(source, most) {
    [this.source, this.most, this.at, this.held, this.bits, this.size] = [source, most, 0, 0, 0, 0];
    this.buffer = new Uint8Array(Math.min(most, 4 * source.length + 64));
  }

  byte() {
    if (this.at >= this.source.length) throw broken();
    return this.source[this.at++];
  }

  /** The next bits as a number, the lowest first. */
  take(count) {
    while (this.bits < count) {
      this.held |= this.byte() << this.bits;
      this.bits += 8;
    }
    const value = this.held & ((1 << count) - 1);
    this.held >>>= count;
    this.bits -= count;
    return value;
  }

  /** Forget the bits up to the next byte. */
  endByte() {
    this.held = this.bits = 0;
  }

  symbol(codes) {
    let [code, first, index] = [0, 0, 0];
    for (let bits = 1; bits <= MAX_BITS; bits += 1) {
      code |= this.take(1);
      const count = codes.counts[bits];
      if (code - count < first) return codes.symbols[index + code - first];
      index += count;
      first = 2 * (first + count);
      code *= 2;
    }
    throw broken();
  }

  /** Room for so many bytes more. */
  reserve(count) {
    const needed = this.size + count;
    if (needed > this.most) throw wrongSize();
    if (needed <= this.buffer.length) return;
    const larger = new Uint8Array(Math.min(this.most, Math.max(needed, 2 * this.buffer.length)));
    larger.set(this.buffer.subarray(0, this.size));
    this.buffer = larger;
  }

  content() {
    return this.buffer.subarray(0, this.size);
  }

  /** One block; whether it was the last. */
  block() {
    const [last, kind] = [this.take(1), this.take(2)];
    if (kind === 0) this.stored();
    else if (kind === 1) this.compressed(FIXED, FIXED_DISTANCES);
    else if (kind === 2) this.compressed(...this.codes());
    else throw broken();
    return last;
  }

  stored() {
    this.endByte();
    const length = this.byte() + 256 * this.byte();
    const inverse = this.byte() + 256 * this.byte();
    if (length + inverse !== 65535 || this.at + length > this.source.length) throw broken();
    this.reserve(length);
    this.buffer.set(this.source.subarray(this.at, this.at + length), this.size);
    this.at += length;
    this.size += length;
  }

  /** The codes of a block, which are coded themselves. */
  codes() {
    const [literals, distances, count] = [this.take(5) + 257, this.take(5) + 1, this.take(4) + 4];
    if (literals > 286 || distances > 30) throw broken();
    const lengths = new Uint8Array(19);
    for (let i = 0; i < count; i += 1) lengths[CODE_ORDER[i]] = this.take(3);
    const codes = new Codes(lengths);
    const found = new Uint8Array(literals + distances);
    for (let i = 0; i < found.length;) {
      const symbol = this.symbol(codes);
      if (symbol < 16) {
        found[i++] = symbol;
        continue;
      }
      if (symbol === 16 && i === 0) throw broken();
      const value = symbol === 16 ? found[i - 1] : 0;
      const times = symbol === 16 ? 3 + this.take(2) : symbol === 17 ? 3 + this.take(3) : 11 + this.take(7);
      if (i + times > found.length) throw broken();
      found.fill(value, i, i + times);
      i += times;
    }
    return [new Codes(found.subarray(0, literals)), new Codes(found.subarray(literals))];
  }

  compressed(literals, distances) {
    for (;;) {
      const symbol = this.symbol(literals);
      if (symbol === 256) return;
      if (symbol < 256) {
        this.reserve(1);
        this.buffer[this.size++] = symbol;
        continue;
      }
      if (symbol > 285) throw broken();
      const length = LENGTHS[symbol - 257] + this.take(LENGTH_BITS[symbol - 257]);
      const step = this.symbol(distances);
      if (step > 29) throw broken();
      const bits = step < 4 ? 0 : (step >> 1) - 1;
      const distance = (step < 4 ? step : (2 + (step & 1)) << bits) + 1 + this.take(bits);
      if (distance > this.size) throw broken();
      this.reserve(length);
      for (let i = 0; i < length; i += 1, this.size += 1) this.buffer[this.size] = this.buffer[this.size - distance];
    }
  }
}

const FIXED = new Codes(Uint8Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)));
const FIXED_DISTANCES = new Codes(new Uint8Array(30).fill(5));

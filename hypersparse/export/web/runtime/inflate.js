// Inflating zlib streams (RFC 1950) up to a given size: a small stream may claim gigabytes.

import { FileError } from "./errors.js";

const wrongSize = () => new FileError("a part of it inflates to another size than it should");

/** Inflate at most `most` bytes; with `exact`, exactly as many. */
export async function inflate(deflated, most, exact = false) {
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const chunks = await chunksOf(stream.getReader(), most);
  const content = new Uint8Array(chunks.reduce((size, chunk) => size + chunk.length, 0));
  if (exact && content.length < most) throw wrongSize();
  let start = 0;
  for (const chunk of chunks) {
    content.set(chunk, start);
    start += chunk.length;
  }
  return content;
}

async function chunksOf(reader, most) {
  const chunks = [];
  let left = most;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      left -= part.value.length;
      if (left < 0) break;
      chunks.push(part.value);
    }
  } catch {
    throw new FileError("a part of it does not inflate");
  }
  if (left >= 0) return chunks;
  reader.cancel().catch(() => {}); // what follows is not needed
  throw wrongSize();
}

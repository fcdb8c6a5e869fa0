// SHA-256 (FIPS 180-4). Browsers have their own on secure pages only.

/** The digest of bytes, as hexadecimal digits. */
export function sha256(bytes) {
  const { constants, state } = START;
  const hash = state.slice();
  const padded = new Uint8Array((bytes.length + 72) & ~63);
  padded.set(bytes);
  padded[bytes.length] = 128;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, (8 * bytes.length) >>> 0);
  const words = new Int32Array(64);
  for (let start = 0; start < padded.length; start += 64) {
    for (let i = 0; i < 16; i += 1) words[i] = view.getInt32(start + 4 * i);
    for (let i = 16; i < 64; i += 1) {
      const [a, b] = [words[i - 15], words[i - 2]];
      const mixed = rotated(a, 7) ^ rotated(a, 18) ^ (a >>> 3);
      words[i] = words[i - 16] + mixed + words[i - 7] + (rotated(b, 17) ^ rotated(b, 19) ^ (b >>> 10));
    }
    mix(hash, words, constants);
  }
  return [...hash].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

const rotated = (word, bits) => (word >>> bits) | (word << (32 - bits));

function mix(hash, words, constants) {
  let [a, b, c, d, e, f, g, h] = hash;
  for (let i = 0; i < 64; i += 1) {
    const sums = (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g));
    const first = (h + sums + constants[i] + words[i]) | 0;
    const second = ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (hash[i] += word));
}

/** The first 32 bits of the fractions of roots of the first primes. */
function start() {
  const primes = [];
  for (let n = 2; primes.length < 64; n += 1) if (primes.every((prime) => n % prime)) primes.push(n);
  const fraction = (root) => (root - Math.floor(root)) * 2 ** 32;
  return {
    state: Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime))),
    constants: Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime))),
  };
}

const START = start();

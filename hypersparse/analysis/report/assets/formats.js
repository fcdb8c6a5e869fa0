// Number formats.

const SPACE = "\u00a0"; // that no line breaks at
const known = (value) => value !== null && value !== undefined;
const percent = (value, digits = 2) => (known(value) ? `${(100 * value).toFixed(digits)}${SPACE}%` : "");
const hundredths = (value) => value.toFixed(2);
const shownPercent = (value) => `${hundredths(value)}${SPACE}%`; // of a value that is in per cent already
const points = (share) => hundredths(100 * share);
const count = (value) => (known(value) ? Math.round(value).toLocaleString("en-US") : "");
const exact = (value) => (known(value) ? String(value) : "");

function scaled(value, units, step) {
  let place = 0;
  while (value >= step && place < units.length - 1) {
    value /= step;
    place += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(3)}${SPACE}${units[place]}`;
}

const bytes = (value) => (known(value) ? scaled(value, ["B", "kB", "MB", "GB"], 1000) : "");
const FLOPS = ["FLOPs", "kFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs", "EFLOPs"];
const flops = (value) => (known(value) ? scaled(value, FLOPS, 1000) : "");
const flopsUnit = (value) => flops(value).replace("FLOPs", ""); // under a heading that names them

function duration(seconds) {
  if (!known(seconds)) return "";
  if (seconds < 10) return `${seconds.toFixed(1)}${SPACE}s`;
  if (seconds < 120) return `${seconds.toFixed(0)}${SPACE}s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)}${SPACE}min` : `${(seconds / 3600).toFixed(1)}${SPACE}h`;
}

// A sparsity in per cent, without rounding errors: 0.998 is 99.8 %.
const sparsity = (value) => (known(value) ? `${+(100 * value).toFixed(4)}${SPACE}%` : "");

function withDeviation(mean, deviation) {
  if (!known(mean)) return "";
  return known(deviation) ? `${mean.toFixed(2)}${SPACE}±${SPACE}${deviation.toFixed(2)}` : mean.toFixed(2);
}

const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// For axes: 20000 is 20k, 0.00005 is 5e-5.
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) {
    const text = value.toExponential().replace("e+", "e");
    return text.replace(/\.?0+e/, "e").replace(/(\.\d)\d+e/, "$1e");
  }
  const power = [12, 9, 6, 3].find((each) => size >= 10 ** each);
  return power ? `${+(value / 10 ** power).toPrecision(4)}${"kMGT"[power / 3 - 1]}` : String(+value.toPrecision(4));
}

// With five digits, as curves are stored.
const fine = (value) =>
  value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(3).replace(/\.?0+e/, "e") : String(+value.toPrecision(5));

// The values of a column, a place an epoch; null where nothing is known.
function unpack(column, epochs) {
  if (!column) return [];
  const values = column.values ? [...column.values] : [];
  for (let place = 0; place < (column.runs || []).length; place += 2) {
    values.push(...Array(column.runs[place + 1]).fill(column.runs[place]));
  }
  const all = [...Array(column.at).fill(null), ...values];
  return [...all, ...Array(Math.max(0, epochs - all.length)).fill(null)];
}

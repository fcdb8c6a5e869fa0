// How numbers are written.

const known = (value) => value !== null && value !== undefined;
const percent = (value, digits = 2) => (known(value) ? `${(100 * value).toFixed(digits)} %` : "");
const count = (value) => (known(value) ? Math.round(value).toLocaleString("en-US") : "");
const exact = (value) => (known(value) ? String(value) : "");

function scaled(value, units, step) {
  let place = 0;
  while (value >= step && place < units.length - 1) {
    value /= step;
    place += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(3)} ${units[place]}`;
}

const bytes = (value) => (known(value) ? scaled(value, ["B", "kB", "MB", "GB"], 1000) : "");
const FLOPS = ["FLOPs", "kFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs", "EFLOPs"];
const flops = (value) => (known(value) ? scaled(value, FLOPS, 1000) : "");

function duration(seconds) {
  if (!known(seconds)) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// A sparsity as per cent, without the dust of binary fractions: 0.998 is 99.8 %.
const sparsity = (value) => (known(value) ? `${+(100 * value).toFixed(4)} %` : "");

function withDeviation(mean, deviation) {
  if (!known(mean)) return "";
  return known(deviation) ? `${mean.toFixed(2)} ± ${deviation.toFixed(2)}` : mean.toFixed(2);
}

const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(size >= 1e5 ? 0 : 1).replace("e+", "e") : String(+value.toPrecision(4));
}

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

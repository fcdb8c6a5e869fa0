// Numbers and names in a readable form.

const thousands = (number) => number.toLocaleString("en");
const percent = (share) => (share >= 0.9995 && share < 1 ? "> 99.9 %" : `${(100 * share).toFixed(1)} %`);
const digitsOf = (value, digits) =>
  Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 });

const spoken = (name) => name.replaceAll("_", " "); // a readable class name

function milliseconds(value) {
  return value < 1 ? `${digitsOf(1000 * value, 3)} µs` : `${digitsOf(value, 3)} ms`;
}

function bytes(value) {
  if (value < 1000) return `${value} bytes`;
  return value < 1e6 ? `${digitsOf(value / 1e3, 3)} kB` : `${digitsOf(value / 1e6, 3)} MB`;
}

function factor(dense, sparse, less, more) {
  if (!(sparse > 0 && dense > 0)) return "";
  const times = dense / sparse;
  if (times >= 0.95 && times <= 1.05) return "about the same";
  return times > 1 ? `${digitsOf(times, 2)} × ${less}` : `${digitsOf(1 / times, 2)} × ${more}`;
}

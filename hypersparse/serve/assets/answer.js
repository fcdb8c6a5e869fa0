// What the networks said, and what they are made of.

const thousands = (number) => number.toLocaleString("en");
const percent = (share) => (share >= 0.9995 && share < 1 ? "> 99.9 %" : `${(100 * share).toFixed(1)} %`);
const digitsOf = (value, digits) =>
  Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 });

const spoken = (name) => name.replaceAll("_", " "); // a class as people write it

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

function bar(share) {
  const fill = el("span", { class: "fill" });
  fill.style.width = `${100 * share}%`;
  return el("span", { class: "track", "aria-hidden": "true" }, fill);
}

function verdict(network, answer) {
  const [channels, height, width] = network.input;
  if (!answer) {
    const words = network.draws ? "Draw something, or drop an image." : "Drop an image, paste one or choose one.";
    return [el("div", { class: "verdict" }, el("p", { class: "class empty" }, words))];
  }
  const sparse = answer.sparse;
  const size = `${width} × ${height}, ${channels === 1 ? "grey" : "colour"}`;
  const alike = answer.dense.class === sparse.class;
  return [
    el(
      "div",
      { class: "verdict" },
      el(
        "div",
        null,
        el("p", { class: "class", id: "class" }, spoken(sparse.class)),
        el("p", null, `${percent(sparse.share)} sure`),
        el(
          "p",
          { class: "small" },
          alike ? "The dense network says the same." : `The dense network says ${spoken(answer.dense.class)}.`,
        ),
      ),
      el(
        "figure",
        { class: "seen" },
        el("img", { src: answer.seen, alt: `What the network gets: ${size}` }),
        el("figcaption", { class: "small" }, size),
      ),
    ),
    el(
      "ol",
      { class: "bars", "aria-label": "The likeliest classes" },
      answer.top.map((one) =>
        el(
          "li",
          null,
          el("span", { class: "name", title: one.class }, spoken(one.class)),
          bar(one.share),
          el("span", { class: "percent" }, percent(one.share)),
        ),
      ),
    ),
  ];
}

function comparison(network, answer) {
  const row = (name, ours, theirs, times) => {
    const kind = /slower|larger|more/.test(times) ? "times worse" : "times";
    return el(
      "tr",
      null,
      el("th", { scope: "row" }, name),
      el("td", { class: "ours" }, ours, times ? el("span", { class: `${kind} beneath` }, times) : null), // on phones
      el("td", null, theirs),
      el("td", { class: `${kind} aside` }, times),
    );
  };
  const head = (name, words) => el("th", { scope: "col" }, name, el("span", { class: "small" }, words));
  const said = (one) => (one ? `${spoken(one.class)}, ${percent(one.share)}` : "–");
  const took = (one) => (one ? milliseconds(one.milliseconds) : "–");
  const [sparse, dense] = [answer?.sparse, answer?.dense];
  const faster = answer ? factor(dense.milliseconds, sparse.milliseconds, "faster", "slower") : "";
  return el(
    "table",
    { class: "compare" },
    el(
      "thead",
      null,
      el(
        "tr",
        null,
        el("td"),
        head("sparse", network.engine),
        head("dense", network.dense_engine),
        el("td", { class: "aside" }),
      ),
    ),
    el(
      "tbody",
      null,
      row("answer", said(sparse), said(dense), ""),
      row("time for one image", took(sparse), took(dense), faster),
      row(
        "file",
        bytes(network.bytes),
        `${bytes(network.dense_bytes)} (ONNX)`,
        factor(network.dense_bytes, network.bytes, "smaller", "larger"),
      ),
      row(
        "weights",
        thousands(network.kept),
        thousands(network.total),
        `${percent(1 - network.kept / network.total)} zeros`,
      ),
      row(
        "multiplications",
        thousands(network.products),
        thousands(network.dense_products),
        factor(network.dense_products, network.products, "fewer", "more"),
      ),
    ),
  );
}

function fineprint(network, answer) {
  const measured = answer
    ? `Times are medians of ${answer.calls} calls of each network, in turns, for this image alone. Outputs differ by ${answer.difference.toExponential(0)} at most. `
    : "";
  const shrunk =
    network.profile === "deploy" ? " The file was made with --deploy: dead structure is gone from both." : "";
  return `${measured}The dense network is the same one with its zeros stored and computed.${shrunk}`;
}

function layersTable(network) {
  const head = (name, kind) => el("th", { scope: "col", class: kind }, name);
  const row = (layer) =>
    el(
      "tr",
      null,
      el("th", { scope: "row", title: layer.name }, layer.name),
      el("td", { class: "shape" }, layer.shape.join(" × ")),
      el("td", { class: "number" }, thousands(layer.kept)),
      el("td", { class: "number of" }, thousands(layer.total)),
      el("td", { class: "number" }, percent(layer.kept / layer.total)),
      el("td", { class: "share-cell" }, bar(layer.kept / layer.total)),
    );
  return el(
    "table",
    null,
    el(
      "thead",
      null,
      el(
        "tr",
        null,
        head("layer"),
        head("shape", "shape"),
        head("used", "number"),
        head("of", "number of"),
        head("share", "number"),
        el("td"),
      ),
    ),
    el("tbody", null, network.layers.map(row)),
  );
}

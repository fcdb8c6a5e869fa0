// Tables that compare the sparse network with the dense one.

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
  const heads = [head("sparse", network.engine), head("dense", network.dense_engine)];
  const [kept, total, smallFile, file] = [network.kept, network.total, network.bytes, network.dense_bytes];
  const [products, denseProducts] = [network.products, network.dense_products];
  const fewer = factor(denseProducts, products, "fewer", "more");
  return table({ class: "compare" }, [el("td"), ...heads, el("td", { class: "aside" })], [
    row("answer", said(sparse), said(dense), ""),
    row("time for one image", took(sparse), took(dense), faster),
    row("file", bytes(smallFile), `${bytes(file)} (ONNX)`, factor(file, smallFile, "smaller", "larger")),
    row("weights", thousands(kept), thousands(total), `${percent(1 - kept / total)} zeros`),
    row("multiplications", thousands(products), thousands(denseProducts), fewer),
  ]);
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
  const counts = [head("used", "number"), head("of", "number of"), head("share", "number")];
  return table(null, [head("layer"), head("shape", "shape"), ...counts, el("td")], network.layers.map(row));
}

// The prediction for an image.

function bar(share) {
  const fill = el("span", { class: "fill" });
  fill.style.width = `${100 * share}%`;
  return el("span", { class: "track", "aria-hidden": "true" }, fill);
}

// `answer` has `top`, the likeliest classes with their shares, `seen`, the URL of the network's input, and a `note`.
function verdict(network, answer) {
  const [channels, height, width] = network.input;
  if (!answer) {
    const words = network.draws ? "Draw something, or drop an image." : "Drop an image, paste one or choose one.";
    return [el("div", { class: "verdict" }, el("p", { class: "class empty" }, words))];
  }
  const size = `${width} × ${height}, ${channels === 1 ? "grey" : "color"}`;
  const [best] = answer.top;
  return [
    el(
      "div",
      { class: "verdict" },
      el(
        "div",
        null,
        el("p", { class: "class", id: "class" }, spoken(best.class)),
        el("p", null, `${percent(best.share)} sure`),
        el("p", { class: "small" }, answer.note),
      ),
      el(
        "figure",
        { class: "seen" },
        el("img", { src: answer.seen, alt: `What the network gets: ${size}` }),
        el("figcaption", { class: "small" }, size),
      ),
    ),
    el("ol", { class: "bars", "aria-label": "The likeliest classes" }, answer.top.map(likely)),
  ];
}

function likely(one) {
  const name = el("span", { class: "name", title: one.class }, spoken(one.class));
  return el("li", null, name, bar(one.share), el("span", { class: "percent" }, percent(one.share)));
}

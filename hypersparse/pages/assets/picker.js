// The input card: a pad to draw on; images can also be dropped, pasted, chosen or taken from the samples.

const failed = el("p", { class: "failed", role: "alert", hidden: true });

function fail(sentence) {
  failed.textContent = sentence;
  failed.hidden = !sentence;
}

class Picker {
  // `onDraw` is called after a stroke, `onFile` with a file, `onClear` when the input is to be cleared.
  constructor({ types, onDraw, onFile, onClear, words, buttons = [] }) {
    Object.assign(this, { onDraw, onFile });
    this.chooser = el("input", {
      type: "file",
      id: "file",
      accept: types.join(","),
      class: "unseen",
      tabindex: -1,
      "aria-label": "Image",
    });
    this.pad = new Pad(onDraw, () => this.chooser.click());
    this.heading = el("h2", null);
    this.samples = el("div", { class: "samples-place" });
    const choose = { class: "quiet strong", id: "choose", onclick: () => this.chooser.click() };
    const row = el(
      "div",
      { class: "row" },
      button(choose, icon("image"), "Choose image"),
      buttons,
      button({ class: "quiet", id: "clear", onclick: onClear }, icon("reset"), "Clear"),
    );
    const parts = [
      this.heading,
      this.pad.node,
      row,
      this.samples,
      this.chooser,
      el("p", { class: "small" }, words),
      failed,
    ];
    this.node = el("section", { class: "card", id: "input", "aria-label": "Input" }, parts);
    this.listen();
  }

  listen() {
    this.chooser.addEventListener("change", () => {
      if (this.chooser.files[0]) this.onFile(this.chooser.files[0]);
      this.chooser.value = ""; // the same file may be chosen again
    });
    document.addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files || [])].find((one) => one.type.startsWith("image/"));
      if (file) this.onFile(file);
    });
    for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
      document.addEventListener(name, (event) => {
        event.preventDefault(); // a browser would leave the page for the file
        this.node.classList.toggle("over", name === "dragenter" || name === "dragover");
        const file = name === "drop" && event.dataTransfer?.files[0];
        if (file) this.onFile(file);
      });
    }
  }

  // Show what a network accepts, with samples.
  show(network) {
    const what = network.digits ? "Draw a digit, or drop an image" : "Draw, or drop an image";
    this.heading.textContent = network.draws ? what : "Drop an image";
    this.offeredSamples = samplesFor(network.names, network.draws);
    const row = samplesRow(this.offeredSamples, (sample) => this.try(sample));
    this.samples.replaceChildren(el("p", { class: "small" }, "Or try a sample"), row);
  }

  async try(sample) {
    if (!sample.strokes) {
      this.onFile(await fileOf(sample));
      return;
    }
    this.pad.clear();
    this.pad.draw(sample.strokes);
    this.onDraw();
  }
}

// The frame of a page: skip link, title, actions and footer.
function pageFrame(name, words, version, ...actions) {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  const title = el("div", null, el("h1", null, name), el("p", { class: "small" }, words));
  const brand = el("div", { class: "brand" }, logo(), title);
  document.querySelector("header.top").append(
    brand,
    el(
      "div",
      { class: "actions" },
      actions,
      themeButton(() => {}),
    ),
  );
  const said = `hypersparse ${version}. Nothing on this page is loaded from anywhere else.`;
  document.querySelector("footer.bottom").append(el("p", { class: "small" }, said));
}

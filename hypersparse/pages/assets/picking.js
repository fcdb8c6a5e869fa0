// The card with the field to draw on: images are dropped, pasted, chosen, or one of the samples.

const failed = el("p", { class: "failed", role: "alert", hidden: true });

function fail(sentence) {
  failed.textContent = sentence;
  failed.hidden = !sentence;
}

class Picker {
  // `drew` is called when something was drawn, `take` with a file, `clear` when all is to be thrown away.
  constructor({ types, drew, take, clear, words, buttons = [] }) {
    Object.assign(this, { drew, take });
    this.chooser = el("input", {
      type: "file",
      id: "file",
      accept: types.join(","),
      class: "unseen",
      tabindex: -1,
      "aria-label": "Image",
    });
    this.pad = new Pad(drew, () => this.chooser.click());
    this.heading = el("h2", null);
    this.samples = el("div", { class: "samples-place" });
    const choose = { class: "quiet strong", id: "choose", onclick: () => this.chooser.click() };
    const row = el(
      "div",
      { class: "row" },
      button(choose, icon("image"), "Choose image"),
      buttons,
      button({ class: "quiet", id: "clear", onclick: clear }, icon("reset"), "Clear"),
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
      if (this.chooser.files[0]) this.take(this.chooser.files[0]);
      this.chooser.value = ""; // the same file may be chosen again
    });
    document.addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files || [])].find((one) => one.type.startsWith("image/"));
      if (file) this.take(file);
    });
    for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
      document.addEventListener(name, (event) => {
        event.preventDefault(); // a browser would leave the page for the file
        this.node.classList.toggle("over", name === "dragenter" || name === "dragover");
        const file = name === "drop" && event.dataTransfer?.files[0];
        if (file) this.take(file);
      });
    }
  }

  // What can be tried with a network.
  show(network) {
    const what = network.digits ? "Draw a digit, or drop an image" : "Draw, or drop an image";
    this.heading.textContent = network.draws ? what : "Drop an image";
    this.offered = samplesFor(network.names, network.draws);
    const row = samplesRow(this.offered, (sample) => this.try(sample));
    this.samples.replaceChildren(el("p", { class: "small" }, "Or try a sample"), row);
  }

  async try(sample) {
    if (!sample.strokes) {
      this.take(await fileOf(sample));
      return;
    }
    this.pad.clear();
    this.pad.draw(sample.strokes);
    this.drew();
  }
}

// Skip to the content, and a title that others can be put beside.
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

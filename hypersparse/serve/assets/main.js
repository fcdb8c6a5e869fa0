// What is on the page, and asking the server.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
let number = 0; // of the network that is tried
let picture = null; // a file that was dropped, pasted or chosen; what is drawn if there is none
let busy = false;
let again = false; // whether there is something newer to ask about
let turn = 0; // raised when what is asked about is thrown away; answers of an earlier turn are not shown

const network = () => data.networks[number];
const failed = el("p", { class: "failed", role: "alert", hidden: true });
const result = el("section", { class: "card", "aria-label": "Answer" });
const beside = el("section", { class: "card" });
const layers = el("section", { class: "card layers" });
const chooser = el("input", {
  type: "file",
  id: "file",
  accept: data.types.join(","),
  class: "unseen",
  tabindex: -1,
  "aria-label": "Image",
});
const pad = new Pad(drew, () => chooser.click());

function fail(sentence) {
  failed.textContent = sentence;
  failed.hidden = !sentence;
}

function show(answer) {
  result.replaceChildren(el("h2", null, "Answer"), ...verdict(network(), answer));
  beside.replaceChildren(
    el("h2", null, "Beside the dense network"),
    el("div", { class: "scroll plain" }, comparison(network(), answer)),
    el("p", { class: "small" }, fineprint(network(), answer)),
  );
}

function drew() {
  picture = null;
  ask();
}

// One request at a time; what is drawn meanwhile is asked about when the answer is there.
async function ask() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  do {
    again = false;
    const began = turn;
    const drawn = picture ? 0 : 1;
    const content = picture || (pad.isDrawn ? await pad.drawing() : null);
    if (!content) break;
    if (turn === began) await predict(content, drawn, began);
  } while (again);
  busy = false;
}

async function predict(content, drawn, began) {
  const asked = number;
  let answer;
  try {
    const address = `api/predict?network=${asked}&drawn=${drawn}&compare=1`;
    const headers = { "Content-Type": content.type || "application/octet-stream" };
    const response = await fetch(address, { method: "POST", body: content, headers });
    answer = await response.json();
  } catch {
    if (turn === began) fail("The server does not answer; is it still running?");
    return;
  }
  if (turn !== began) return;
  if (asked !== number) {
    again = true;
    return;
  }
  if (again) return; // an older answer would only flicker
  fail(answer.error || "");
  show(answer.error ? null : answer);
  say(answer.error ? "" : `${answer.sparse.class}, ${percent(answer.sparse.share)} sure.`);
}

function take(file) {
  if (!file) return;
  if (file.size > data.most_bytes) {
    fail(`An image may have ${data.most_bytes / 2 ** 20} MiB at most; this one has ${bytes(file.size)}.`);
    return;
  }
  turn += 1;
  picture = file;
  pad.show(file, network().draws);
  ask();
}

function clear() {
  turn += 1;
  picture = null;
  pad.clear();
  fail("");
  show(null);
  say("Cleared.");
}

function choose(place) {
  const drew = !picture && pad.isDrawn;
  const before = network();
  number = place;
  const now = network();
  document.title = `${now.name}: hypersparse`;
  if (before.draws !== now.draws || (!drew && !picture)) {
    pad.setUp(now);
    if (picture) pad.show(picture, now.draws);
  }
  fail("");
  show(null);
  notes.replaceChildren(...now.notes.map((words) => el("p", null, words)));
  notes.hidden = !now.notes.length;
  heading.textContent = now.draws
    ? now.digits
      ? "Draw a digit, or drop an image"
      : "Draw, or drop an image"
    : "Drop an image";
  const used = `${thousands(now.kept)} of ${thousands(now.total)} weights`;
  layers.replaceChildren(
    el("h2", null, "Weights used per layer"),
    el(
      "p",
      { class: "summary" },
      `${used} are not zero; the others are ${now.engine.startsWith("hypersparse") ? "neither stored nor computed" : "not stored"}.`,
    ),
    el(
      "div",
      { class: "scroll plain", tabindex: 0, role: "region", "aria-label": "Weights used per layer" },
      layersTable(now),
    ),
  );
  ask();
}

const heading = el("h2", null);
const notes = el("div", { class: "notice", hidden: true });
const input = el(
  "section",
  { class: "card", id: "input", "aria-label": "Input" },
  heading,
  pad.node,
  el(
    "div",
    { class: "row" },
    el(
      "button",
      { type: "button", class: "quiet strong", id: "choose", onclick: () => chooser.click() },
      icon("image"),
      "Choose an image",
    ),
    el("button", { type: "button", class: "quiet", id: "clear", onclick: clear }, icon("reset"), "Clear"),
  ),
  chooser,
  el(
    "p",
    { class: "small" },
    "Images can be dropped anywhere on the page or pasted. They go to this server and nowhere else, and are not kept.",
  ),
  failed,
);

function networkField() {
  if (data.networks.length === 1) return null;
  const options = data.networks.map((one, place) => el("option", { value: place }, one.name));
  const select = el("select", { id: "network" }, options);
  select.addEventListener("change", () => choose(Number(select.value)));
  return el("div", { class: "field" }, el("label", { for: "network" }, "Network"), select);
}

chooser.addEventListener("change", () => {
  take(chooser.files[0]);
  chooser.value = ""; // the same file may be chosen again
});
document.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files || [])].find((one) => one.type.startsWith("image/"));
  if (file) take(file);
});
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault(); // a browser would leave the page for the file
    input.classList.toggle("over", name === "dragenter" || name === "dragover");
    if (name === "drop") take(event.dataTransfer?.files[0]);
  });
}
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

const single = data.networks.length === 1 ? data.networks[0].name : "Sparse networks";
document.querySelector("header.top").append(
  el(
    "div",
    { class: "brand" },
    logo(),
    el("div", null, el("h1", null, single), el("p", { class: "small" }, "a sparse network beside its dense twin")),
  ),
  el(
    "div",
    { class: "actions" },
    networkField() || "",
    themeButton(() => {}),
  ),
);
document
  .querySelector("footer.bottom")
  .append(
    el("p", { class: "small" }, `hypersparse ${data.version}. Nothing on this page is loaded from anywhere else.`),
  );
main.replaceChildren(notes, el("div", { class: "try" }, input, el("div", { class: "right" }, result, beside)), layers);
pad.setUp(network());
choose(0);

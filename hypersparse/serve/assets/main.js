// The page, and its requests to the server.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
let selected = 0; // index of the selected network
let picture = null; // a dropped, pasted or chosen file; without one the drawing is the input
let isBusy = false;
let isStale = false; // whether the input changed after the running request
let inputNumber = 0; // of the current input; answers for an earlier input are not shown

const network = () => data.networks[selected];
const result = el("section", { class: "card", "aria-label": "Answer" });
const comparisonCard = el("section", { class: "card" });
const layers = el("section", { class: "card layers" });
const picker = new Picker({
  types: data.types,
  onDraw,
  onFile,
  onClear,
  words:
    "Images can be dropped anywhere on the page or pasted. They go to this server and nowhere else, and are not kept.",
});
const { pad } = picker;

function show(answer) {
  const dense = answer?.dense.class;
  const note =
    dense === answer?.sparse.class ? "The dense network says the same." : `The dense network says ${spoken(dense)}.`;
  result.replaceChildren(el("h2", null, "Answer"), ...verdict(network(), answer && { ...answer, note }));
  comparisonCard.replaceChildren(
    el("h2", null, "Beside the dense network"),
    el("div", { class: "scroll plain" }, comparison(network(), answer)),
    el("p", { class: "small" }, fineprint(network(), answer)),
  );
}

function onDraw() {
  picture = null;
  requestAnswer();
}

// One request at a time. Input that arrives meanwhile is sent after the answer.
async function requestAnswer() {
  if (isBusy) {
    isStale = true;
    return;
  }
  isBusy = true;
  do {
    isStale = false;
    const asOf = inputNumber;
    const drawn = picture ? 0 : 1;
    const content = picture || (pad.isDrawn ? await pad.drawing() : null);
    if (!content) break;
    if (inputNumber === asOf) await predict(content, drawn, asOf);
  } while (isStale);
  isBusy = false;
}

async function predict(content, drawn, asOf) {
  const asked = selected;
  let answer;
  try {
    const address = `api/predict?network=${asked}&drawn=${drawn}&compare=1`;
    const headers = { "Content-Type": content.type || "application/octet-stream" };
    const response = await fetch(address, { method: "POST", body: content, headers });
    answer = await response.json();
  } catch {
    if (inputNumber === asOf) fail("The server does not answer; is it still running?");
    return;
  }
  if (inputNumber !== asOf) return;
  if (asked !== selected) {
    isStale = true;
    return;
  }
  if (isStale) return; // a newer answer follows
  fail(answer.error || "");
  show(answer.error ? null : answer);
  say(answer.error ? "" : `${answer.sparse.class}, ${percent(answer.sparse.share)} sure.`);
}

function onFile(file) {
  if (file.size > data.most_bytes) {
    fail(`An image may have ${data.most_bytes / 2 ** 20} MiB at most; this one has ${bytes(file.size)}.`);
    return;
  }
  inputNumber += 1;
  picture = file;
  pad.show(file, network().draws);
  requestAnswer();
}

function onClear() {
  inputNumber += 1;
  picture = null;
  pad.clear();
  fail("");
  show(null);
  say("Cleared.");
}

function selectNetwork(index) {
  const hasDrawing = !picture && pad.isDrawn;
  const before = network();
  selected = index;
  const now = network();
  document.title = `${now.name}: hypersparse`;
  if (before.draws !== now.draws || (!hasDrawing && !picture)) {
    pad.setUp(now);
    if (picture) pad.show(picture, now.draws);
  }
  fail("");
  show(null);
  notes.replaceChildren(...now.notes.map((words) => el("p", null, words)));
  notes.hidden = !now.notes.length;
  picker.show(now);
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
  requestAnswer();
}

const notes = el("div", { class: "notice", hidden: true });

function networkField() {
  if (data.networks.length === 1) return null;
  const options = data.networks.map((one, place) => el("option", { value: place }, one.name));
  const select = el("select", { id: "network" }, options);
  select.addEventListener("change", () => selectNetwork(Number(select.value)));
  return el("div", { class: "field" }, el("label", { for: "network" }, "Network"), select);
}

const single = data.networks.length === 1 ? data.networks[0].name : "Sparse networks";
pageFrame(single, "a sparse network beside its dense twin", data.version, networkField() || "");
main.replaceChildren(
  notes,
  el("div", { class: "try" }, picker.node, el("div", { class: "right" }, result, comparisonCard)),
  layers,
);
pad.setUp(network());
selectNetwork(0);

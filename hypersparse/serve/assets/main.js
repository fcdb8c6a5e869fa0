// What is on the page, and asking the server.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
let number = 0; // of the network that is tried
let picture = null; // a file that was dropped, pasted or chosen; what is drawn if there is none
let busy = false;
let again = false; // whether there is something newer to ask about
let turn = 0; // raised when what is asked about is thrown away; answers of an earlier turn are not shown

const network = () => data.networks[number];
const result = el("section", { class: "card", "aria-label": "Answer" });
const beside = el("section", { class: "card" });
const layers = el("section", { class: "card layers" });
const picker = new Picker({
  types: data.types,
  drew,
  take,
  clear,
  words:
    "Images can be dropped anywhere on the page or pasted. They go to this server and nowhere else, and are not kept.",
});
const { pad } = picker;

function show(answer) {
  const dense = answer?.dense.class;
  const note =
    dense === answer?.sparse.class ? "The dense network says the same." : `The dense network says ${spoken(dense)}.`;
  result.replaceChildren(el("h2", null, "Answer"), ...verdict(network(), answer && { ...answer, note }));
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
  ask();
}

const notes = el("div", { class: "notice", hidden: true });

function networkField() {
  if (data.networks.length === 1) return null;
  const options = data.networks.map((one, place) => el("option", { value: place }, one.name));
  const select = el("select", { id: "network" }, options);
  select.addEventListener("change", () => choose(Number(select.value)));
  return el("div", { class: "field" }, el("label", { for: "network" }, "Network"), select);
}

const single = data.networks.length === 1 ? data.networks[0].name : "Sparse networks";
pageFrame(single, "a sparse network beside its dense twin", data.version, networkField() || "");
main.replaceChildren(
  notes,
  el("div", { class: "try" }, picker.node, el("div", { class: "right" }, result, beside)),
  layers,
);
pad.setUp(network());
choose(0);

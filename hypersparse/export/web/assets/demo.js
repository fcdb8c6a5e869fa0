// The page of one network, which runs in the browser.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const TYPES = ["image/png", "image/jpeg", "image/webp", "image/bmp", "image/gif", ".hsp"];
const MOST_BYTES = 100 * 2 ** 20; // of a file
const FRAME = 80; // milliseconds between two images of the camera

let network = null;
let camera = null; // its stream, while it runs
let isWaiting = false; // for the next animation frame
let inputNumber = 0; // of the current input; images decoded for an earlier input are not shown

const result = el("section", { class: "card", "aria-label": "Answer" });
const device = el("section", { class: "card" });
const layers = el("section", { class: "card layers" });
const notes = el("div", { class: "notice", hidden: true });
const cameraButton = button(
  { class: "quiet", id: "camera", onclick: toggleCamera, hidden: !navigator.mediaDevices?.getUserMedia },
  icon("camera"),
  "Camera",
);
const picker = new Picker({
  types: TYPES,
  onDraw,
  onFile: (file) => attempt(() => openFile(file)),
  onClear,
  words:
    "Images can be dropped anywhere on the page or pasted. They stay on this device. A file in .hsp format is another network to try.",
  buttons: [cameraButton],
});

const decode64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

// Strokes arrive faster than animation frames.
function onDraw() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    if (picker.pad.isDrawn) attempt(() => show(null));
  });
}

async function attempt(action) {
  fail("");
  inputNumber += 1;
  try {
    await action();
  } catch (error) {
    fail(error.message);
    answer(null);
  }
}

async function openFile(file) {
  stopCamera();
  if (file.size > MOST_BYTES)
    throw new Error(`A file may have ${MOST_BYTES / 2 ** 20} MiB at most; this one has ${bytes(file.size)}.`);
  if (file.name?.endsWith(".hsp")) {
    const other = await Predictor.load(new Uint8Array(await file.arrayBuffer()), file.name);
    use(other);
    return;
  }
  const startedAs = inputNumber;
  let picture;
  try {
    picture = await createImageBitmap(file, { colorSpaceConversion: "none" });
  } catch {
    throw new Error("This is not a whole image that this browser can read; take a PNG, JPEG or WebP file.");
  }
  if (inputNumber !== startedAs) return;
  picker.pad.paint(picture, network.draws);
  show(picture);
}

// Predict for a picture, or for what is drawn.
function show(picture) {
  if (!picture) stopCamera();
  const pixels = pixelsOf(picture ?? picker.pad.canvas, network.input, {
    drawn: !picture,
    darkOnLight: network.darkOnLight,
  });
  const top = network.predict(pixels);
  answer({ top, pixels, milliseconds: network.time() });
}

function answer(given) {
  const time = given && milliseconds(given.milliseconds);
  const shown = given && { ...given, seen: network.seen(given.pixels), note: `Computed on this device in ${time}.` };
  result.replaceChildren(el("h2", null, "Answer"), ...verdict(network, shown));
  device.replaceChildren(el("h2", null, "On this device"), el("div", { class: "scroll plain" }, facts(given)));
  say(given ? `${given.top[0].class}, ${percent(given.top[0].share)} sure.` : "");
  if (given && !network.isProfiled) profileLater();
}

function facts(given) {
  const { model, size } = network;
  const [kept, total] = ["kept", "total"].map((name) => model.layers.reduce((sum, layer) => sum + layer[name], 0));
  const row = (name, value, aside) =>
    el(
      "tr",
      null,
      el("th", { scope: "row" }, name),
      el("td", { class: "ours" }, value),
      el("td", { class: "aside" }, aside),
    );
  const rate = given
    ? `${thousands(Number((1000 / given.milliseconds).toPrecision(2)))} images a second, one thread`
    : "draw or choose an image";
  const rows = [
    row("time for one image", given ? milliseconds(given.milliseconds) : "–", rate),
    row("network", bytes(size), `${bytes(4 * total)} with its zeros, ${factor(4 * total, size, "smaller", "larger")}`),
    row("weights", thousands(kept), `of ${thousands(total)}, ${percent(1 - kept / total)} zeros`),
    row(
      "multiplications",
      thousands(model.products),
      `of ${thousands(model.denseProducts)}, ${factor(model.denseProducts, model.products, "fewer", "more")}`,
    ),
  ];
  return el("table", { class: "facts" }, el("tbody", null, rows));
}

// Time all layers once for each network: the times are the same for every image. The page waits meanwhile.
function profileLater() {
  const shown = network;
  shown.isProfiled = true;
  setTimeout(() => {
    if (shown === network) showLayers(network.model.profile());
  }, 100);
}

function showLayers(profile) {
  const { model } = network;
  const times = new Map();
  for (const { name, milliseconds: took } of profile ?? []) times.set(name, (times.get(name) ?? 0) + took);
  const known = new Set(model.layers.map((layer) => layer.name));
  const rest = [...times].filter(([name]) => !known.has(name)).reduce((sum, [, took]) => sum + took, 0);
  const most = Math.max(...model.layers.map((layer) => layer.products), 1);
  const took = (name) => (times.has(name) ? milliseconds(times.get(name)) : "–");
  const number = (value, kind = "") => el("td", { class: `number ${kind}` }, value);
  const rows = model.layers.map((layer) =>
    el(
      "tr",
      null,
      el("th", { scope: "row", title: layer.name }, layer.name),
      el("td", { class: "shape" }, layer.shape.join(" × ")),
      number(thousands(layer.kept), "kept"),
      number(thousands(layer.total), "of"),
      number(thousands(layer.products)),
      el("td", { class: "share-cell" }, bar(layer.products / most)),
      number(took(layer.name)),
    ),
  );
  const head = [
    ["layer"],
    ["shape", "shape"],
    ["weights", "number kept"],
    ["of", "number of"],
    ["multiplications", "number"],
    ["", ""],
    ["time", "number"],
  ];
  const titles = el(
    "tr",
    null,
    head.map(([name, kind]) => (name ? el("th", { scope: "col", class: kind }, name) : el("td"))),
  );
  const table = el("table", { class: "work" }, el("thead", null, titles), el("tbody", null, rows));
  const words = [
    "Zeros are neither stored nor computed.",
    model.about.profile === "deploy" ? "Weights that nothing depends on were removed from the file." : "",
    profile ? `Layers are timed one by one, in this browser; all other steps take ${milliseconds(rest)}.` : "",
  ];
  layers.replaceChildren(
    el("h2", null, "Work per layer"),
    el("p", { class: "summary" }, words.filter(Boolean).join(" ")),
    el("div", { class: "scroll plain", tabindex: 0, role: "region", "aria-label": "Work per layer" }, table),
  );
}

function onClear() {
  inputNumber += 1;
  stopCamera();
  picker.pad.clear();
  fail("");
  answer(null);
  say("Cleared.");
}

async function toggleCamera() {
  if (camera) {
    stopCamera();
    return;
  }
  await attempt(async () => {
    const startedAs = inputNumber;
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      throw new Error(`The camera cannot be used: ${error.message || error.name}.`);
    }
    if (inputNumber !== startedAs) {
      for (const track of stream.getTracks()) track.stop();
      return;
    }
    const video = el("video", { playsinline: true, muted: true });
    video.srcObject = stream;
    await video.play();
    camera = stream;
    cameraButton.classList.add("on");
    cameraButton.setAttribute("aria-pressed", "true");
    follow(video, stream);
  });
}

// Predict for every frame of the camera.
function follow(video, stream) {
  if (camera !== stream) return;
  if (video.videoWidth) {
    const frame = el("canvas", { width: video.videoWidth, height: video.videoHeight });
    frame.getContext("2d").drawImage(video, 0, 0);
    picker.pad.paint(frame, false);
    try {
      show(frame);
    } catch (error) {
      fail(error.message);
    }
  }
  setTimeout(() => follow(video, stream), FRAME);
}

function stopCamera() {
  for (const track of camera?.getTracks() ?? []) track.stop();
  camera = null;
  cameraButton.classList.remove("on");
  cameraButton.setAttribute("aria-pressed", "false");
}

// Switch to another network and clear the input.
function use(other) {
  network = other;
  document.title = `${network.name}: hypersparse`;
  document.querySelector("h1").textContent = network.name;
  notes.replaceChildren(...network.notes.map((words) => el("p", null, words)));
  notes.hidden = !network.notes.length;
  picker.show(network);
  picker.pad.setUp(network);
  answer(null);
  showLayers(null);
  if (!network.draws) picker.try(picker.offeredSamples[0]);
}

async function start() {
  pageFrame(data.title, "a sparse network that runs in this page", data.version);
  try {
    use(await Predictor.load(decode64(data.network), data.title));
  } catch (error) {
    notes.replaceChildren(el("p", null, `This network cannot run here. ${error.message}`));
    notes.hidden = false;
    main.replaceChildren(notes);
    return;
  }
  main.replaceChildren(
    notes,
    el("div", { class: "try" }, picker.node, el("div", { class: "right" }, result, device)),
    layers,
  );
}

start();

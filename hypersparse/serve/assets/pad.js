// The field to draw on, or to drop an image on. What is drawn is black on white; a dark page only shows it inverted.

const SIDE = 320; // pixels of the field
const PEN = 22; // their thickness
const STEP = 10; // of an arrow key

function makePad(changed, asked) {
  const canvas = el("canvas", { width: SIDE, height: SIDE, id: "pad", tabindex: 0 });
  const hint = el("div", { class: "hint", "aria-hidden": "true" });
  const tip = el("div", { class: "tip-of-pen", hidden: true, "aria-hidden": "true" });
  const node = el("div", { class: "pad" }, canvas, hint, tip);
  const context = canvas.getContext("2d");
  const pen = { x: SIDE / 2, y: SIDE / 2, down: false };
  let draws = true;
  let drawn = false;
  let shown = false; // whether a picture is on it

  function clear() {
    context.fillStyle = "#fff";
    context.fillRect(0, 0, SIDE, SIDE);
    canvas.classList.add("paper");
    drawn = shown = false;
    hint.hidden = false;
  }

  function line(from, to) {
    if (shown) clear();
    Object.assign(context, { strokeStyle: "#000", lineWidth: PEN, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y + (from.x === to.x && from.y === to.y ? 0.01 : 0)); // a tap is a dot
    context.stroke();
    drawn = true;
    hint.hidden = true;
    changed();
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: ((event.clientX - box.left) * SIDE) / box.width, y: ((event.clientY - box.top) * SIDE) / box.height };
  };
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (!draws || event.button > 0) return;
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    line(last, last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    for (const each of event.getCoalescedEvents?.() || [event]) {
      const next = place(each);
      line(last, next);
      last = next;
    }
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
  canvas.addEventListener("click", () => {
    if (!draws) asked();
  });

  function showTip() {
    tip.style.left = `${(100 * pen.x) / SIDE}%`;
    tip.style.top = `${(100 * pen.y) / SIDE}%`;
    tip.classList.toggle("down", pen.down);
  }

  function move(dx, dy) {
    const within = (value) => Math.min(Math.max(value, PEN / 2), SIDE - PEN / 2);
    const next = { x: within(pen.x + dx * STEP), y: within(pen.y + dy * STEP) };
    if (pen.down) line(pen, next);
    Object.assign(pen, next);
    tip.hidden = false;
    showTip();
  }

  const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const opens = !draws && (event.key === "Enter" || event.key === " ");
    if (opens) asked();
    else if (draws && MOVES[event.key]) move(...MOVES[event.key]);
    else if (draws && event.key === " ") {
      pen.down = !pen.down;
      if (pen.down) line(pen, pen);
      tip.hidden = false;
      showTip();
      say(pen.down ? "Pen down." : "Pen up.");
    } else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => {
    tip.hidden = true;
    pen.down = false;
  });

  function setUp(network) {
    draws = network.draws;
    const what = network.digits ? "a digit" : "";
    const words = draws ? `Draw ${what || "here"}` : "Drop an image here";
    hint.replaceChildren(icon(draws ? "pen" : "image"), el("span", null, words));
    canvas.classList.toggle("pen", draws);
    canvas.classList.toggle("button", !draws);
    set(canvas, {
      role: draws ? "application" : "button",
      "aria-label": draws
        ? `Field to draw ${what} on. Arrow keys move the pen, the space bar lowers and lifts it.`.replace("  ", " ")
        : "Choose an image; it can also be dropped or pasted here.",
    });
    clear();
  }

  // The middle of a picture, as the network gets it; one that a browser cannot show is left to the server's answer.
  async function show(file, whole) {
    let picture;
    try {
      picture = await createImageBitmap(file);
    } catch {
      return;
    }
    clear();
    const fit = whole ? Math.max(picture.width, picture.height) : Math.min(picture.width, picture.height);
    const [width, height] = [(SIDE * picture.width) / fit, (SIDE * picture.height) / fit];
    context.imageSmoothingEnabled = fit > 64;
    context.drawImage(picture, (SIDE - width) / 2, (SIDE - height) / 2, width, height);
    canvas.classList.remove("paper");
    shown = true;
    hint.hidden = true;
  }

  const drawing = () => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return { node, clear, setUp, show, drawing, isDrawn: () => drawn };
}

Object.assign(ICONS, {
  pen: "M3 13l.8-3.2 7.4-7.4 2.4 2.4-7.4 7.4zM9.6 4l2.4 2.4",
  image: "M2.5 3.5h11v9h-11zM2.5 11l3.5-3.5 3 3 2-2 2.5 2.5M10.5 6.2v.1",
});

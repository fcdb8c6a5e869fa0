// A pad to draw on or to drop an image on. Drawings are black on white; dark pages only display them inverted.

const SIDE = 320; // pixels of the field
const PEN = 22; // thickness of a stroke
const STEP = 10; // of an arrow key
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

Object.assign(ICONS, {
  pen: "M3 13l.8-3.2 7.4-7.4 2.4 2.4-7.4 7.4zM9.6 4l2.4 2.4",
  camera: "M2 5h2.8l1.2-1.8h4L11.2 5H14v7.5H2zM8 6.6a2 2 0 1 0 0 4 2 2 0 1 0 0-4",
  image: "M2.5 3.5h11v9h-11zM2.5 11l3.5-3.5 3 3 2-2 2.5 2.5M10.5 6.2v.1",
});

class Pad {
  // `onDraw` is called after a stroke, `onChoose` when the user wants to choose an image.
  constructor(onDraw, onChoose) {
    this.onDraw = onDraw;
    this.onChoose = onChoose;
    this.canvas = el("canvas", { width: SIDE, height: SIDE, id: "pad", tabindex: 0 });
    this.hint = el("div", { class: "hint", "aria-hidden": "true" });
    this.tip = el("div", { class: "tip-of-pen", hidden: true, "aria-hidden": "true" });
    this.node = el("div", { class: "pad" }, this.canvas, this.hint, this.tip);
    this.context = this.canvas.getContext("2d");
    this.draws = true; // whether the network takes drawings
    this.isDrawn = false;
    this.hasPicture = false;
    this.version = 0; // of the content; an image decoded for an earlier version is not shown
    this.pen = { x: SIDE / 2, y: SIDE / 2, down: false }; // moved by keys
    this.listenToPointers();
    this.listenToKeys();
  }

  setUp(network) {
    this.draws = network.draws;
    const what = network.digits ? "a digit" : "";
    const words = this.draws ? `Draw ${what || "here"}` : "Drop an image here";
    this.hint.replaceChildren(icon(this.draws ? "pen" : "image"), el("span", null, words));
    this.canvas.classList.toggle("pen", this.draws);
    this.canvas.classList.toggle("button", !this.draws);
    const field = what ? `Field to draw ${what} on.` : "Field to draw on.";
    set(this.canvas, {
      role: this.draws ? "application" : "button",
      "aria-label": this.draws
        ? `${field} Arrow keys move the pen, the space bar lowers and lifts it.`
        : "Choose an image; it can also be dropped or pasted here.",
    });
    this.clear();
  }

  clear() {
    this.version += 1;
    this.context.fillStyle = "#fff";
    this.context.fillRect(0, 0, SIDE, SIDE);
    this.canvas.classList.add("paper");
    this.isDrawn = this.hasPicture = false;
    this.hint.hidden = false;
  }

  line(from, to) {
    if (this.hasPicture) this.clear();
    this.version += 1;
    const context = this.context;
    Object.assign(context, { strokeStyle: "#000", lineWidth: PEN, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y + (from.x === to.x && from.y === to.y ? 0.01 : 0)); // a tap is a dot
    context.stroke();
    this.isDrawn = true;
    this.hint.hidden = true;
    this.onDraw();
  }

  // Draw points in the unit square as one stroke.
  draw(points) {
    const places = points.map(([x, y]) => ({ x: SIDE * x, y: SIDE * y }));
    const onDraw = this.onDraw;
    this.onDraw = () => {}; // called by the caller, once
    places.slice(1).forEach((place, before) => this.line(places[before], place));
    this.onDraw = onDraw;
  }

  listenToPointers() {
    const canvas = this.canvas;
    let last = null;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return { x: ((event.clientX - box.left) * SIDE) / box.width, y: ((event.clientY - box.top) * SIDE) / box.height };
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.draws || event.button > 0) return;
      canvas.setPointerCapture(event.pointerId);
      last = place(event);
      this.line(last, last);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      const between = event.getCoalescedEvents?.() || [];
      for (const each of between.length ? between : [event]) {
        const next = place(each);
        this.line(last, next);
        last = next;
      }
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
    canvas.addEventListener("click", () => {
      if (!this.draws) this.onChoose();
    });
  }

  listenToKeys() {
    this.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const space = event.key === " ";
      if (!this.draws && (space || event.key === "Enter")) this.onChoose();
      else if (this.draws && MOVES[event.key]) this.move(...MOVES[event.key]);
      else if (this.draws && space) this.lowerOrLift();
      else return;
      event.preventDefault();
    });
    this.canvas.addEventListener("blur", () => {
      this.tip.hidden = true;
      this.pen.down = false;
    });
  }

  move(dx, dy) {
    const within = (value) => Math.min(Math.max(value, PEN / 2), SIDE - PEN / 2);
    const next = { x: within(this.pen.x + dx * STEP), y: within(this.pen.y + dy * STEP) };
    if (this.pen.down) this.line(this.pen, next);
    Object.assign(this.pen, next);
    this.showTip();
  }

  lowerOrLift() {
    this.pen.down = !this.pen.down;
    if (this.pen.down) this.line(this.pen, this.pen);
    this.showTip();
    say(this.pen.down ? "Pen down." : "Pen up.");
  }

  showTip() {
    this.tip.hidden = false;
    this.tip.style.left = `${(100 * this.pen.x) / SIDE}%`;
    this.tip.style.top = `${(100 * this.pen.y) / SIDE}%`;
    this.tip.classList.toggle("down", this.pen.down);
  }

  // Show the central square of an image, as the network sees it. The server reports images that cannot be decoded.
  async show(file, whole) {
    this.version += 1;
    const version = this.version;
    let picture;
    try {
      picture = await createImageBitmap(file);
    } catch {
      return;
    }
    if (this.version === version) this.paint(picture, whole);
  }

  // Paint the central square of an image, or all of it if `whole`.
  paint(picture, whole) {
    this.clear();
    const fit = whole ? Math.max(picture.width, picture.height) : Math.min(picture.width, picture.height);
    const [width, height] = [(SIDE * picture.width) / fit, (SIDE * picture.height) / fit];
    this.context.imageSmoothingEnabled = fit > 64;
    this.context.drawImage(picture, (SIDE - width) / 2, (SIDE - height) / 2, width, height);
    this.canvas.classList.remove("paper");
    this.hasPicture = true;
    this.hint.hidden = true;
  }

  drawing() {
    return new Promise((resolve) => this.canvas.toBlob(resolve, "image/png"));
  }
}

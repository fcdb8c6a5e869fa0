// Charts: a figure with a legend of buttons, zoom, exact values under the pointer or the arrow keys, and its data as a table.

// Told apart by everyone, and never by colour alone: lines differ in dash and symbol too.
const LOOKS = {
  light: {
    ink: "#1b1f24", muted: "#57606a", grid: "#e3e7ec", axis: "#8c959f", surface: "#ffffff", shades: ["#00000000", "#5b7c9914"],
    palette: ["#0072B2", "#D55E00", "#009E73", "#882D91", "#B3123B", "#8C6D00", "#3A9BD9", "#555555"],
  },
  dark: {
    ink: "#e6e9ee", muted: "#9aa6b2", grid: "#2a323c", axis: "#66717e", surface: "#171c23", shades: ["#00000000", "#9fc3e814"],
    palette: ["#5CB8F2", "#FF9F4A", "#35C99B", "#CF93EE", "#FF7F94", "#DDBB45", "#A7D3FF", "#B9C0C9"],
  },
};
const SYMBOLS = ["circle", "rect", "diamond", "triangle", "emptyCircle", "emptyRect", "emptyDiamond", "emptyTriangle"];
const DASHES = ["solid", [7, 4], [2, 3], [9, 3, 2, 3]];
const NARROW = 520;
const PRINT_WIDTH = 660;
const WHOLE = { start: 0, end: 100 };
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

const charts = new Set();
let printing = false;
const look = () => (!printing && isDark() ? LOOKS.dark : LOOKS.light);
const colorOf = (style, place) => style.palette[place % style.palette.length];
const dashOf = (place) => DASHES[Math.floor(place / 4) % DASHES.length];
const hollow = (place) => symbolOf(place).startsWith("empty");
const symbolOf = (place) => SYMBOLS[Math.floor(place / 8 + place) % SYMBOLS.length];

// Hollow symbols are filled with the page's colour, so that they read on dark pages too.
function marker(style, place, size) {
  const color = colorOf(style, place);
  const shape = symbolOf(place).replace("empty", "");
  return { symbol: shape[0].toLowerCase() + shape.slice(1), symbolSize: size, itemStyle: { color: hollow(place) ? style.surface : color, borderColor: color, borderWidth: hollow(place) ? 2 : 0 } };
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) entry.target.chart.draw();
}, { rootMargin: "400px" });
const resized = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.chart.fit();
});

// legend: {name, color, dash, symbol, show(value) -> words}; option(style, width) -> axes and series for the library;
// table() -> {columns, rows}; zoom: "x", "xy" or null; tip(params) -> element, where one point is looked at; heads: the heading's element.
function makeChart(spec) {
  const chart = new Chart(spec);
  charts.add(chart);
  return chart.figure;
}

// Charts that are about to leave the page.
function dropCharts(place) {
  for (const chart of [...charts].filter((one) => place.contains(one.figure))) {
    chart.dispose();
    charts.delete(chart);
  }
}

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.hidden = new Set();
    this.ranges = [{ ...WHOLE }, { ...WHOLE }]; // what is seen of the axes, in per cent
    this.at = -1;
    this.height = spec.height || 320;
    this.canvas = el("div", { class: "canvas", style: `height:${this.height}px` });
    this.canvas.chart = this;
    const keys = spec.point ? "Left and right arrow keys read the values, plus and minus zoom." : "Its data follow as a table.";
    this.frame = el("div", {
      class: "chart", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": `${spec.title}. ${keys}`,
    }, this.canvas);
    this.frame.addEventListener("keydown", (event) => this.key(event));
    this.frame.addEventListener("blur", () => this.instance && this.instance.dispatchAction({ type: "hideTip" }));
    this.figure = el("figure", { class: `card figure${spec.wide ? " wide" : ""}` },
      el("figcaption", null, el(spec.heads || "h4", { class: "figure-title" }, spec.title), el("p", { class: "summary" }, spec.summary)),
      el("div", { class: "bar" }, this.legend(), this.tools()), this.frame, this.data());
    seen.observe(this.canvas);
    resized.observe(this.canvas);
  }

  legend() {
    const buttons = (this.spec.legend || []).map((item) => {
      const button = el("button", { type: "button", class: "key", "aria-pressed": "true" }, swatch(item), item.name);
      button.addEventListener("click", () => {
        const off = button.getAttribute("aria-pressed") === "true";
        button.setAttribute("aria-pressed", String(!off));
        this.hidden[off ? "add" : "delete"](item.name);
        this.draw(true);
      });
      return button;
    });
    return el("div", { class: "legend", role: "group", "aria-label": `Series of ${this.spec.title}` }, buttons);
  }

  tools() {
    const tool = (name, words, act) =>
      el("button", { type: "button", class: "tool", title: words, "aria-label": `${words}: ${this.spec.title}`, onclick: act }, icon(name));
    const zoom = this.spec.zoom
      ? [tool("plus", "Zoom in", () => this.scale(0.6)), tool("minus", "Zoom out", () => this.scale(1 / 0.6)), tool("reset", "Show all", () => this.showAll())]
      : [];
    return el("div", { class: "tools", role: "group", "aria-label": `Tools of ${this.spec.title}` }, zoom, tool("save", "Save as SVG", () => this.save()));
  }

  data() {
    let table = null;
    const build = () => (table ||= makeTable({ caption: `${this.spec.title}: data`, hideCaption: true, ...this.spec.table() }));
    const details = el("details", { class: "data" }, el("summary", null, "Data"),
      csvButton(build, slug(this.spec.title)));
    details.addEventListener("toggle", () => details.open && !table && details.append(build().node), { once: false });
    return details;
  }

  draw(again = false) {
    seen.unobserve(this.canvas);
    if (this.instance && !again) return;
    const width = printing ? PRINT_WIDTH : this.canvas.clientWidth || PRINT_WIDTH;
    this.instance ||= this.begin();
    this.drawnNarrow = width < NARROW;
    const style = look();
    const names = (this.spec.legend || []).map((item) => item.name);
    this.instance.setOption({
      animation: false,
      textStyle: { fontFamily: FONT, color: style.ink, fontSize: 12 },
      color: style.palette,
      aria: { enabled: true, label: { description: `${this.spec.title}. ${this.spec.summary}` } },
      legend: { show: false, data: names, selected: Object.fromEntries(names.map((name) => [name, !this.hidden.has(name)])) },
      tooltip: this.tooltip(style),
      ...this.zooming(),
      ...this.spec.option(style, width),
    }, { notMerge: true });
    if (this.spec.zoom && matchMedia("(pointer: fine)").matches) {
      this.instance.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
    }
  }

  begin() {
    const instance = echarts.init(this.canvas, null, { renderer: "svg" });
    instance.on("datazoom", () => {
      const zoomed = instance.getOption().dataZoom;
      this.ranges = this.ranges.map((_, place) => (this.spec.zoom.length > place ? { start: zoomed[place].start, end: zoomed[place].end } : WHOLE));
    });
    if (this.spec.click) instance.on("click", (event) => this.spec.click(event));
    return instance;
  }

  zooming() {
    if (!this.spec.zoom) return {};
    const axes = [{ xAxisIndex: 0 }, ...(this.spec.zoom === "xy" ? [{ yAxisIndex: 0 }] : [])];
    const both = this.spec.zoom === "xy" ? { xAxisIndex: 0, yAxisIndex: 0 } : { xAxisIndex: 0, yAxisIndex: false };
    return {
      dataZoom: axes.map((axis, place) => ({
        type: "inside", ...axis, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: false, moveOnMouseWheel: false,
        preventDefaultMouseMove: false, ...this.ranges[place],
      })),
      // The library zooms by dragging only where its toolbox is; its buttons are ours, above the chart.
      toolbox: { itemSize: 0, top: -30, showTitle: false, feature: { dataZoom: { ...both, filterMode: "none", brushStyle: { color: "#5b9bd533" } } } },
    };
  }

  tooltip(style) {
    const common = {
      confine: true, backgroundColor: style.surface, borderColor: style.axis, textStyle: { color: style.ink, fontSize: 12 }, padding: [6, 10],
      formatter: (params) => this.tip(params),
    };
    return this.spec.tip
      ? { ...common, trigger: "item" }
      : { ...common, trigger: "axis", axisPointer: { type: this.spec.pointer || "line", lineStyle: { color: style.axis }, shadowStyle: { color: "#7f9fbf22" } } };
  }

  tip(params) {
    if (this.spec.tip) return this.spec.tip(params);
    return this.spec.axisTip ? this.spec.axisTip(params) : tipOf(this.spec.heading(params[0]), this.values(params));
  }

  values(params) {
    const items = Object.fromEntries((this.spec.legend || []).map((item) => [item.name, item]));
    return params.map((one) => [items[one.seriesName], Array.isArray(one.value) ? one.value[1] : one.value])
      .filter(([item, value]) => item && known(value)).map(([item, value]) => [item, item.show(value)]);
  }

  fit() {
    if (!this.instance || printing) return;
    this.instance.resize();
    if (this.drawnNarrow !== this.canvas.clientWidth < NARROW) this.draw(true);
  }

  showAll() {
    this.draw();
    this.instance.dispatchAction({ type: "dataZoom", ...WHOLE });
  }

  scale(factor) {
    this.draw();
    const { start, end } = this.ranges[0];
    const middle = (start + end) / 2;
    const half = Math.max(1, ((end - start) / 2) * factor);
    this.instance.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: Math.max(0, middle - half), end: Math.min(100, middle + half) });
  }

  key(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.spec.zoom && event.key === "+") this.scale(0.6);
    else if (this.spec.zoom && event.key === "-") this.scale(1 / 0.6);
    else if (this.spec.zoom && event.key === "0") this.showAll();
    else if (this.spec.point && moves[event.key]) this.read(this.at + moves[event.key]);
    else if (this.spec.point && event.key === "Home") this.read(0);
    else if (this.spec.point && event.key === "End") this.read(this.spec.points - 1);
    else if (event.key === "Escape" && this.instance) this.instance.dispatchAction({ type: "hideTip" });
    else return;
    event.preventDefault();
  }

  read(place) {
    this.draw();
    this.at = Math.max(0, Math.min(this.spec.points - 1, place));
    const { words, action } = this.spec.point(this.at, this.hidden);
    this.instance.dispatchAction({ type: "showTip", ...action });
    say(words);
  }

  save() {
    this.draw();
    download(`${slug(this.spec.title)}.svg`, "image/svg+xml", this.instance.renderToSVGString());
  }

  print(on) {
    this.instance ||= this.begin();
    this.instance.resize(on ? { width: PRINT_WIDTH, height: this.height } : { width: "auto", height: "auto" });
    this.draw(true);
    this.instance.getZr().flush(); // paper does not wait for the next frame
  }

  dispose() {
    seen.unobserve(this.canvas);
    resized.unobserve(this.canvas);
    if (this.instance) this.instance.dispose();
  }
}

function swatch(item) {
  const line = svg("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: "currentColor", "stroke-width": 2.4 });
  const dash = item.dash && item.dash !== "solid" ? item.dash.join(" ") : null;
  set(line, { "stroke-dasharray": dash });
  const parts = item.box ? [svg("rect", { x: 6, y: 1, width: 14, height: 10, fill: item.hollow ? "none" : "currentColor", stroke: "currentColor" })]
    : [...(item.line === false ? [] : [line]), ...(item.symbol ? [mark(item.symbol)] : [])];
  return svg("svg", { viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true", class: `color-${item.color % 8}` }, ...parts);
}

function mark(symbol) {
  const dashOf = (place) => DASHES[Math.floor(place / 4) % DASHES.length];
const hollow = symbol.startsWith("empty");
  const shape = symbol.replace("empty", "").toLowerCase();
  const paint = { fill: hollow ? "var(--surface)" : "currentColor", stroke: "currentColor", "stroke-width": 1.6 };
  if (shape === "circle") return svg("circle", { cx: 13, cy: 6, r: 3.6, ...paint });
  const points = { rect: "9.6,2.6 16.4,2.6 16.4,9.4 9.6,9.4", diamond: "13,1.4 17.6,6 13,10.6 8.4,6", triangle: "13,1.8 17.4,9.8 8.6,9.8" };
  return svg("polygon", { points: points[shape], ...paint });
}

function tipOf(heading, values) {
  const rows = values.map(([item, words]) => el("div", { class: "tip-row" }, swatch(item), el("span", null, item.name), el("b", null, words)));
  return el("div", { class: "tip" }, el("div", { class: "tip-head" }, heading), rows);
}

function valueAxis(style, name, more) {
  return {
    type: "value", scale: true, name, nameTextStyle: { color: style.muted, align: "left", padding: [0, 0, 0, -40] }, nameGap: 14,
    axisLine: { show: false }, axisTick: { show: false }, splitLine: { lineStyle: { color: style.grid } }, ...more,
    axisLabel: { color: style.muted, formatter: short, hideOverlap: true, ...more?.axisLabel },
  };
}

function crossAxis(style, name, more) {
  return {
    type: "value", name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: style.muted },
    axisLine: { show: true, onZero: false, lineStyle: { color: style.axis } }, splitLine: { show: false }, ...more,
    axisTick: { lineStyle: { color: style.axis }, ...more?.axisTick, show: true },
    axisLabel: { color: style.muted, hideOverlap: true, formatter: short, ...more?.axisLabel },
  };
}

// A logarithmic axis from a little below the smallest value to a little above the largest, with at least three ticks.
function logarithmic(values, show) {
  const there = values.filter((value) => value > 0);
  if (!there.length) return {};
  const low = Math.min(...there), high = Math.max(...there);
  const margin = Math.max((high / low) ** 0.06, 1.08);
  const [min, max] = [low / margin, high * margin];
  const ticks = (steps) => {
    const powers = Array.from({ length: Math.ceil(Math.log10(max)) - Math.floor(Math.log10(min)) + 1 }, (_, place) => Math.floor(Math.log10(min)) + place);
    return powers.flatMap((power) => steps.map((step) => +`${step}e${power}`)).filter((tick) => tick >= min && tick <= max);
  };
  const sets = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]].map(ticks);
  const customValues = sets.find((set) => set.length >= 3) || sets.at(-1);
  return { type: "log", min, max, axisTick: { show: false, customValues }, axisLabel: { customValues, formatter: show || short, hideOverlap: true } };
}

const plot = (more) => ({ left: 52, right: 20, top: 34, bottom: 46, outerBoundsMode: "none", ...more });

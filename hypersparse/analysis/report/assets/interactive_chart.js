// Charts: a figure with a legend of buttons, zoom, exact values under the pointer or the arrow keys, and its data as a table.

const NARROW = 520;
const PRINT_WIDTH = 660;
const WHOLE = { start: 0, end: 100 };
const charts = new Set();
let printing = false;
const currentStyle = () => (!printing && isDark() ? STYLES.dark : STYLES.light);

const drawVisible = (entries) => entries.forEach((entry) => entry.isIntersecting && entry.target.chart.draw());
const visibilityObserver = new IntersectionObserver(drawVisible, { rootMargin: "400px" });
const resizeObserver = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.chart.fit()));

// legend: {name, color, dash, symbol, show(value) -> words}; option(style, width) -> axes and series for the library;
// table() -> {columns, rows}; zoom: "x", "xy" or null; tip(params) -> element, where one point is looked at;
// points, point(at) -> {words, action}: what the arrow keys step through; headingTag: the element of the heading.
function makeChart(spec) {
  const chart = new Chart(spec);
  charts.add(chart);
  return chart.figure;
}

// Dispose of the charts inside an element that leaves the page.
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
    const keys = spec.point
      ? "Left and right arrow keys read the values, plus and minus zoom."
      : "Its data are in the table below.";
    const role = { role: "application", "aria-roledescription": "chart", "aria-label": `${spec.title}. ${keys}` };
    this.frame = el("div", { class: "chart", tabindex: 0, ...role }, this.canvas);
    this.frame.addEventListener("keydown", (event) => this.key(event));
    this.frame.addEventListener("blur", () => this.instance && this.instance.dispatchAction({ type: "hideTip" }));
    const heading = el(spec.headingTag || "h4", { class: "figure-title" }, spec.title);
    const caption = el("figcaption", null, heading, el("p", { class: "summary" }, spec.summary));
    const bar = el("div", { class: "bar" }, this.legend(), this.tools());
    const shape = { class: `card figure${spec.wide ? " wide" : ""}` };
    this.figure = el("figure", shape, caption, bar, this.frame, this.data());
    visibilityObserver.observe(this.canvas);
    resizeObserver.observe(this.canvas);
  }

  legend() {
    const buttons = (this.spec.legend || []).map((item) => {
      const key = button({ class: "key", "aria-pressed": "true" }, swatch(item), item.name);
      key.addEventListener("click", () => {
        const off = key.getAttribute("aria-pressed") === "true";
        key.setAttribute("aria-pressed", String(!off));
        this.hidden[off ? "add" : "delete"](item.name);
        this.draw(true);
      });
      return key;
    });
    return el("div", { class: "legend", role: "group", "aria-label": `Series of ${this.spec.title}` }, buttons);
  }

  tools() {
    const label = (words) => ({ title: words, "aria-label": `${words}: ${this.spec.title}` });
    const tool = (name, words, onclick) => button({ class: "tool", ...label(words), onclick }, icon(name));
    const zoom = this.spec.zoom && [
      tool("plus", "Zoom in", () => this.scale(0.6)),
      tool("minus", "Zoom out", () => this.scale(1 / 0.6)),
      tool("reset", "Show all", () => this.showAll()),
    ];
    const save = tool("save", "Save as SVG", () => this.save());
    return el("div", { class: "tools", role: "group", "aria-label": `Tools of ${this.spec.title}` }, zoom, save);
  }

  data() {
    let table = null;
    const caption = `${this.spec.title}: data`;
    const build = () => (table ||= makeTable({ caption, hideCaption: true, ...this.spec.table() }));
    const save = csvButton(build, slug(this.spec.title));
    const details = el("details", { class: "data" }, el("summary", null, "Data"), save);
    details.addEventListener("toggle", () => details.open && !table && details.append(build().node));
    return details;
  }

  draw(again = false) {
    visibilityObserver.unobserve(this.canvas);
    if (this.instance && !again) return;
    const width = printing ? PRINT_WIDTH : this.canvas.clientWidth || PRINT_WIDTH;
    this.instance ||= this.begin();
    this.drawnNarrow = width < NARROW;
    const style = currentStyle();
    const names = (this.spec.legend || []).map((item) => item.name);
    const selected = Object.fromEntries(names.map((name) => [name, !this.hidden.has(name)]));
    const options = {
      animation: false,
      textStyle: { fontFamily: FONT, color: style.ink, fontSize: 12 },
      color: style.palette,
      aria: { enabled: true, label: { description: `${this.spec.title}. ${this.spec.summary}` } },
      legend: { show: false, data: names, selected },
      tooltip: this.tooltip(style),
      ...this.zooming(),
      ...this.spec.option(style, width),
    };
    this.instance.setOption(options, { notMerge: true });
    if (this.spec.zoom && matchMedia("(pointer: fine)").matches) {
      this.instance.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
    }
  }

  begin() {
    const instance = echarts.init(this.canvas, null, { renderer: "svg" });
    instance.on("datazoom", () => {
      const zoomed = instance.getOption().dataZoom;
      this.ranges = this.ranges.map((_, place) =>
        this.spec.zoom.length > place ? { start: zoomed[place].start, end: zoomed[place].end } : WHOLE,
      );
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
        type: "inside",
        ...axis,
        filterMode: "none",
        zoomOnMouseWheel: "ctrl",
        moveOnMouseMove: false,
        moveOnMouseWheel: false,
        preventDefaultMouseMove: false,
        ...this.ranges[place],
      })),
      // The library zooms by dragging only with its toolbox; our own buttons are above the chart.
      toolbox: {
        itemSize: 0,
        top: -30,
        showTitle: false,
        feature: { dataZoom: { ...both, filterMode: "none", brushStyle: { color: "#5b9bd533" } } },
      },
    };
  }

  tooltip(style) {
    const common = {
      confine: true,
      backgroundColor: style.surface,
      borderColor: style.axis,
      textStyle: { color: style.ink, fontSize: 12 },
      padding: [6, 10],
      formatter: (params) => this.tip(params),
    };
    if (this.spec.tip) return { ...common, trigger: "item" };
    const styles = { lineStyle: { color: style.axis }, shadowStyle: { color: "#7f9fbf22" } };
    return { ...common, trigger: "axis", axisPointer: { type: this.spec.pointer || "line", ...styles } };
  }

  tip(params) {
    if (this.spec.tip) return this.spec.tip(params);
    return this.spec.axisTip ? this.spec.axisTip(params) : tipOf(this.spec.heading(params[0]), this.values(params));
  }

  values(params) {
    const items = Object.fromEntries((this.spec.legend || []).map((item) => [item.name, item]));
    return params
      .map((one) => [items[one.seriesName], Array.isArray(one.value) ? one.value[1] : one.value])
      .filter(([item, value]) => item && known(value))
      .map(([item, value]) => [item, item.show(value)]);
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
    const range = { start: Math.max(0, middle - half), end: Math.min(100, middle + half) };
    this.instance.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, ...range });
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
    this.instance.getZr().flush(); // printing does not wait for the next frame
  }

  dispose() {
    visibilityObserver.unobserve(this.canvas);
    resizeObserver.unobserve(this.canvas);
    if (this.instance) this.instance.dispose();
  }
}

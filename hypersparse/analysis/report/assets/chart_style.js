// Style of charts: colours, symbols, axes and tooltips.

// Safe for colour-blind readers; lines also differ in dash and symbol.
const STYLES = {
  light: {
    ink: "#1b1f24",
    muted: "#57606a",
    grid: "#e3e7ec",
    axis: "#8c959f",
    surface: "#ffffff",
    shades: ["#00000000", "#5b7c9914"],
    palette: ["#0072B2", "#D55E00", "#009E73", "#882D91", "#B3123B", "#8C6D00", "#3A9BD9", "#555555"],
  },
  dark: {
    ink: "#e6e9ee",
    muted: "#9aa6b2",
    grid: "#2a323c",
    axis: "#66717e",
    surface: "#171c23",
    shades: ["#00000000", "#9fc3e814"],
    palette: ["#5CB8F2", "#FF9F4A", "#35C99B", "#CF93EE", "#FF7F94", "#DDBB45", "#A7D3FF", "#B9C0C9"],
  },
};

const SYMBOLS = ["circle", "rect", "diamond", "triangle", "emptyCircle", "emptyRect", "emptyDiamond", "emptyTriangle"];
const DASHES = ["solid", [7, 4], [2, 3], [9, 3, 2, 3]];
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const colorOf = (style, place) => style.palette[place % style.palette.length];
const dashOf = (place) => DASHES[Math.floor(place / 4) % DASHES.length];
const hollow = (place) => symbolOf(place).startsWith("empty");
const symbolOf = (place) => SYMBOLS[Math.floor(place / 8 + place) % SYMBOLS.length];

// Hollow symbols are filled with the page's colour, so that they read on dark pages too.
function marker(style, place, size) {
  const color = colorOf(style, place);
  const shape = symbolOf(place).replace("empty", "");
  return {
    symbol: shape[0].toLowerCase() + shape.slice(1),
    symbolSize: size,
    itemStyle: { color: hollow(place) ? style.surface : color, borderColor: color, borderWidth: hollow(place) ? 2 : 0 },
  };
}

function swatch(item) {
  const line = svg("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: "currentColor", "stroke-width": 2.4 });
  const dash = item.dash && item.dash !== "solid" ? item.dash.join(" ") : null;
  set(line, { "stroke-dasharray": dash });
  const fill = item.hollow ? "none" : "currentColor";
  const box = svg("rect", { x: 6, y: 1, width: 14, height: 10, fill, stroke: "currentColor" });
  const parts = item.box ? [box] : [item.line === false ? null : line, item.symbol ? mark(item.symbol) : null];
  const frame = { viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" };
  return svg("svg", { ...frame, class: `color-${item.color % 8}` }, ...parts.filter(Boolean));
}

function mark(symbol) {
  const hollow = symbol.startsWith("empty");
  const shape = symbol.replace("empty", "").toLowerCase();
  const paint = { fill: hollow ? "var(--surface)" : "currentColor", stroke: "currentColor", "stroke-width": 1.6 };
  if (shape === "circle") return svg("circle", { cx: 13, cy: 6, r: 3.6, ...paint });
  const points = {
    rect: "9.6,2.6 16.4,2.6 16.4,9.4 9.6,9.4",
    diamond: "13,1.4 17.6,6 13,10.6 8.4,6",
    triangle: "13,1.8 17.4,9.8 8.6,9.8",
  };
  return svg("polygon", { points: points[shape], ...paint });
}

function tipOf(heading, values) {
  const rows = values.map(([item, words]) =>
    el("div", { class: "tip-row" }, swatch(item), el("span", null, item.name), el("b", null, words)),
  );
  return el("div", { class: "tip" }, el("div", { class: "tip-head" }, heading), rows);
}

function valueAxis(style, name, more) {
  return {
    type: "value",
    scale: true,
    name,
    nameTextStyle: { color: style.muted, align: "left", padding: [0, 0, 0, -40] },
    nameGap: 14,
    axisLine: { show: false },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: style.grid } },
    ...more,
    axisLabel: { color: style.muted, formatter: short, hideOverlap: true, ...more?.axisLabel },
  };
}

function crossAxis(style, name, more) {
  return {
    type: "value",
    name,
    nameLocation: "middle",
    nameGap: 28,
    nameTextStyle: { color: style.muted },
    axisLine: { show: true, onZero: false, lineStyle: { color: style.axis } },
    splitLine: { show: false },
    ...more,
    axisTick: { lineStyle: { color: style.axis }, ...more?.axisTick, show: true },
    axisLabel: { color: style.muted, hideOverlap: true, formatter: short, ...more?.axisLabel },
  };
}

// A logarithmic axis from a little below the smallest value to a little above the largest, with at least three ticks.
function logarithmic(values, show) {
  const there = values.filter((value) => value > 0);
  if (!there.length) return {};
  const [low, high] = [Math.min(...there), Math.max(...there)];
  const margin = Math.max((high / low) ** 0.06, 1.08);
  const [min, max] = [low / margin, high * margin];
  const first = Math.floor(Math.log10(min));
  const powers = [...Array(Math.ceil(Math.log10(max)) - first + 1).keys()].map((place) => first + place);
  const within = (tick) => tick >= min && tick <= max;
  const ticks = (steps) => powers.flatMap((power) => steps.map((step) => +`${step}e${power}`)).filter(within);
  const sets = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]].map(ticks);
  const customValues = sets.find((set) => set.length >= 3) || evenTicks(min, max);
  return {
    type: "log",
    min,
    max,
    axisTick: { show: false, customValues },
    axisLabel: { customValues, formatter: show || short, hideOverlap: true },
  };
}

// Three to ten round numbers at equal distances.
function evenTicks(min, max) {
  const power = 10 ** Math.floor(Math.log10(max - min));
  const step = [1, 0.5, 0.2].map((part) => part * power).find((size) => Math.floor(max / size) - Math.ceil(min / size) >= 2);
  const first = Math.ceil(min / step);
  return [...Array(Math.floor(max / step) - first + 1).keys()].map((place) => +((first + place) * step).toPrecision(12));
}

const plot = (more) => ({ left: 52, right: 20, top: 34, bottom: 46, outerBoundsMode: "none", ...more });

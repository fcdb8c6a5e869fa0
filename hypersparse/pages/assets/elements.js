// Elements from plain values. Text is inserted as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

function el(tag, attributes, ...children) {
  const node = set(document.createElement(tag), attributes);
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = set(document.createElementNS(SVG, tag), attributes);
  node.append(...children);
  return node;
}

// Strokes on a 16 by 16 field.
const ICONS = {
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  reset: "M3.5 8a4.5 4.5 0 1 0 1.6-3.4M3.2 2.6v2.9h2.9",
  save: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13h10",
  print: "M4.5 6V2.5h7V6M4.5 11h-2V6h11v5h-2M4.5 9.5h7v4h-7z",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  left: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
};

function icon(name) {
  const path = svg("path", { d: ICONS[name], fill: "none", stroke: "currentColor", "stroke-width": 1.6 });
  set(path, { "stroke-linecap": "round", "stroke-linejoin": "round" });
  return svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", class: "icon" }, path);
}

function section(name, heading, words, ...children) {
  const id = `${name}-title`;
  return el("section", { id: name, "aria-labelledby": id }, el(heading, { id }, words), children);
}

function table(attributes, heads, rows) {
  return el("table", attributes, el("thead", null, el("tr", null, heads)), el("tbody", null, rows));
}

function button(attributes, ...children) {
  return el("button", { type: "button", ...attributes }, ...children);
}

const small = (...children) => el("p", { class: "small" }, ...children);

function say(words) {
  document.getElementById("said").textContent = words;
}

function download(name, type, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function slug(words) {
  return words
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

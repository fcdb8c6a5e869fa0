// Which page is shown, light and dark, and printing.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const main = document.getElementById("main");
const THEMES = ["auto", "light", "dark"];

function isDark() {
  return root.dataset.theme === "dark" || (root.dataset.theme !== "light" && dark.matches);
}

function redraw() {
  root.dataset.scheme = isDark() ? "dark" : "light";
  for (const chart of charts) if (chart.instance) chart.draw(true);
}

function themeButton() {
  const words = el("span", null, "Auto");
  const button = el("button", { type: "button", class: "quiet", id: "theme" }, icon("theme"), words);
  const show = (theme) => {
    root.dataset.theme = theme;
    words.textContent = theme[0].toUpperCase() + theme.slice(1);
    button.setAttribute("aria-label", `Colours: ${theme}`);
    redraw();
  };
  button.addEventListener("click", () => {
    // First what the system did not choose: a click always changes something.
    const order = dark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    const next = order[(order.indexOf(root.dataset.theme) + 1) % order.length];
    show(next);
    remember(next);
    say(`Colours: ${next}.`);
  });
  dark.addEventListener("change", redraw);
  show(remembered());
  return button;
}

// A page opened from disk may not be allowed to remember.
function remember(theme) {
  try {
    localStorage.setItem("hypersparse-theme", theme);
  } catch {
    /* then it is asked for again */
  }
}

function remembered() {
  try {
    const theme = localStorage.getItem("hypersparse-theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

function go(id) {
  location.hash = `#${id}`;
}

function logo() {
  const dots = [];
  for (let row = 0; row < 4; row += 1) {
    for (let column = 0; column < 4; column += 1) {
      const kept = [1, 7, 10, 12].includes(4 * row + column);
      dots.push(
        svg("circle", { cx: 4 + 6.6 * column, cy: 4 + 6.6 * row, r: kept ? 2.7 : 1.1, class: kept ? "kept" : "gone" }),
      );
    }
  }
  return svg("svg", { viewBox: "0 0 28 28", width: 32, height: 32, "aria-hidden": "true", class: "logo" }, ...dots);
}

function show() {
  let hash = location.hash.slice(1);
  try {
    hash = decodeURIComponent(hash);
  } catch {
    /* not one of ours */
  }
  const alone = data.runs.length === 1;
  const run = alone ? data.runs[0] : data.runs.find((one) => one.id === hash);
  if (!alone && !run && shownPage === "overview") return false; // an anchor on the page that is shown
  dropCharts(main);
  shownPage = run ? run.id : "overview";
  const content = run ? [alone ? problemsSection(data) : null, ...runPage(data, run, alone)] : overview(data);
  main.replaceChildren(...content.flat(2).filter(Boolean));
  document.title = run && !alone ? `${run.name}: ${data.title}` : data.title;
  return true;
}

let shownPage = null;
let scrolled = 0; // how far down the overview was left

window.addEventListener("hashchange", () => {
  if (shownPage === "overview") scrolled = window.scrollY;
  if (!show()) return;
  window.scrollTo({ top: shownPage === "overview" ? scrolled : 0, behavior: "instant" });
  const heading = main.querySelector("#run-title");
  (heading ? set(heading, { tabindex: -1 }) : main).focus({ preventScroll: true });
});

function print(on) {
  printing = on;
  for (const chart of charts) chart.print(on);
}

window.addEventListener("beforeprint", () => print(true));
window.addEventListener("afterprint", () => print(false));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

document
  .querySelector("header.top")
  .append(
    el(
      "div",
      { class: "brand" },
      logo(),
      el(
        "div",
        null,
        el("h1", null, data.title),
        el("p", { class: "small" }, `hypersparse ${data.version} · written ${data.made}`),
      ),
    ),
    el(
      "div",
      { class: "actions" },
      themeButton(),
      el(
        "button",
        { type: "button", class: "quiet", id: "print", onclick: () => window.print() },
        icon("print"),
        el("span", null, "Print"),
      ),
    ),
  );
document
  .querySelector("footer.bottom")
  .append(
    el(
      "p",
      { class: "small" },
      `Made by hypersparse ${data.version} from stored runs; nothing was trained for it and nothing is loaded from anywhere. Charts: Apache ECharts ${echarts.version} (Apache License 2.0).`,
    ),
  );
show();

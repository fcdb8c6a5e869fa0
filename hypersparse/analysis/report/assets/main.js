// Which page is shown, and printing.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");

function redraw() {
  for (const chart of charts) if (chart.instance) chart.draw(true);
}

function go(id) {
  location.hash = `#${id}`;
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
      themeButton(redraw),
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

// Light and dark mode, and the logo.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["auto", "light", "dark"];

function isDark() {
  return root.dataset.theme === "dark" || (root.dataset.theme !== "light" && dark.matches);
}

// A button that switches the colours; `changed` is called after every switch.
function themeButton(changed) {
  const words = el("span", null, "Auto");
  const change = button({ class: "quiet", id: "theme" }, icon("theme"), words);
  const apply = () => {
    root.dataset.scheme = isDark() ? "dark" : "light";
    changed();
  };
  const show = (theme) => {
    root.dataset.theme = theme;
    words.textContent = theme[0].toUpperCase() + theme.slice(1);
    change.setAttribute("aria-label", `Colours: ${theme}`);
    apply();
  };
  change.addEventListener("click", () => {
    // Begin with the mode that the system did not choose, so that every click changes the page.
    const order = dark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    const next = order[(order.indexOf(root.dataset.theme) + 1) % order.length];
    show(next);
    remember(next);
    say(`Colours: ${next}.`);
  });
  dark.addEventListener("change", apply);
  show(remembered());
  return change;
}

// Pages opened from disk may have no local storage.
function remember(theme) {
  try {
    localStorage.setItem("hypersparse-theme", theme);
  } catch {
    /* the choice is lost on reload */
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

function logo() {
  const dots = [];
  for (let row = 0; row < 4; row += 1) {
    for (let column = 0; column < 4; column += 1) {
      const kept = [1, 7, 10, 12].includes(4 * row + column);
      const look = kept ? { r: 2.7, class: "kept" } : { r: 1.1, class: "gone" };
      dots.push(svg("circle", { cx: 4 + 6.6 * column, cy: 4 + 6.6 * row, ...look }));
    }
  }
  return svg("svg", { viewBox: "0 0 28 28", width: 32, height: 32, "aria-hidden": "true", class: "logo" }, ...dots);
}

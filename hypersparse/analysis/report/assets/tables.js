// Tables with a caption, sorted by buttons in their headers.

// A column: `show` makes text or an element of a known value and its row.
const textColumn = (title, value, more) => ({ title, value, show: exact, ...more });
const numberColumn = (title, value, show = exact, more = {}) => ({ title, value, show, number: true, ...more });

// Rows without a value come last when they are sorted.
function makeTable({ caption, columns, rows, name = null, hideCaption = false, tall = false }) {
  const body = el("tbody");
  const heads = columns.map((column, place) => {
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const sort = button({ class: "sort", onclick: () => sortBy(place) }, column.title, arrow);
    return el("th", { scope: "col", class: column.number ? "number" : null, title: column.help || null }, sort);
  });
  const cells = (row) => columns.map((column, place) => cell(column, row, place));
  const built = rows.map((row) => ({ row, node: el("tr", null, cells(row)) }));
  let state = { place: null, descending: false };

  function cell(column, row, place) {
    const value = column.value(row);
    const shown = known(value) ? column.show(value, row) : (column.unknown ?? "");
    const classes = [column.number ? "number" : null, column.mark && column.mark(row)].filter(Boolean).join(" ");
    return el(place === 0 ? "th" : "td", { scope: place === 0 ? "row" : null, class: classes || null }, shown);
  }

  function sortBy(place, direction) {
    const first = Boolean(columns[place].number); // numbers begin with the largest
    state = { place, descending: direction ?? (state.place === place ? !state.descending : first) };
    arrange();
    say(`Sorted by ${columns[place].title}, ${state.descending ? "descending" : "ascending"}.`);
  }

  function arrange() {
    heads.forEach((head, place) => {
      const own = place === state.place;
      if (own) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (state.place !== null) {
      const value = columns[state.place].value;
      built.sort((one, other) => compareValues(value(one.row), value(other.row), state.descending));
    }
    body.append(...built.map((item) => item.node));
  }

  function filter(fits) {
    let shown = 0;
    for (const item of built) {
      item.node.hidden = !fits(item.row);
      shown += item.node.hidden ? 0 : 1;
    }
    return shown;
  }

  arrange();
  const words = el("caption", { class: hideCaption ? "unseen" : null }, el("span", null, caption));
  const node = el("table", { id: name }, words, el("thead", null, el("tr", null, heads)), body);
  const region = { role: "region", tabindex: 0, "aria-label": `${caption} (table)` };
  const shownRows = () => built.filter((item) => !item.node.hidden).map((item) => item.row);
  return {
    node: el("div", { class: tall ? "scroll tall" : "scroll", ...region }, node),
    filter,
    csv: () => toCsv(columns, shownRows()),
  };
}

function compareValues(one, other, descending) {
  if (!known(one) || !known(other)) return known(one) ? -1 : known(other) ? 1 : 0;
  const words = () => String(one).localeCompare(String(other), "en", { numeric: true });
  const order = typeof one === "number" ? one - other : words();
  return descending ? -order : order;
}

function toCsv(columns, rows) {
  const quote = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const lines = [columns.map((column) => column.title)];
  for (const row of rows) lines.push(columns.map((column) => exact(column.value(row))));
  return lines.map((line) => line.map(quote).join(",")).join("\n") + "\n";
}

function csvButton(table, file) {
  const save = () => download(`${file}.csv`, "text/csv", table().csv());
  return button({ class: "quiet", onclick: save }, icon("save"), "CSV");
}

// A search field and a select for each column with few values. `changed` receives the rows that match all of them.
function makeFilters(table, rows, choices, textOf, total, changed) {
  const wanted = {};
  let words = [];
  const found = el("output", { class: "found" });
  const search = el("input", { type: "search", id: "filter-text", placeholder: "any words", autocomplete: "off" });
  search.addEventListener("input", () => {
    words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    apply();
  });

  function choice({ title, value, show }) {
    const id = `filter-${slug(title)}`;
    const values = [...new Set(rows.map(value).filter(known))];
    if (values.length < 2) return null;
    values.sort((one, other) => compareValues(one, other, false));
    const options = values.map((item, place) => el("option", { value: place }, show ? show(item) : String(item)));
    const select = el("select", { id }, el("option", { value: "" }, "all"), options);
    select.addEventListener("change", () => {
      if (select.value === "") delete wanted[title];
      else wanted[title] = (row) => value(row) === values[Number(select.value)];
      apply();
    });
    return el("div", { class: "field" }, el("label", { for: id }, title), select);
  }

  function apply() {
    const tests = Object.values(wanted);
    const fits = (row) => tests.every((test) => test(row)) && words.every((word) => textOf(row).includes(word));
    const shown = table.filter(fits);
    found.textContent = (shown === rows.length ? "" : `${count(shown)} of `) + plural(rows.length, total);
    changed(rows.filter(fits));
  }

  const form = el(
    "form",
    { class: "filters", role: "search", "aria-label": "Filter the runs" },
    el("div", { class: "field wide" }, el("label", { for: "filter-text" }, "Search"), search),
    choices.map(choice),
    el("button", { type: "reset", class: "quiet" }, icon("reset"), "All"),
    found,
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    words = [];
    Object.keys(wanted).forEach((key) => delete wanted[key]);
    apply(); // it reads none of the fields, which are cleared after this event
  });
  apply();
  return form;
}

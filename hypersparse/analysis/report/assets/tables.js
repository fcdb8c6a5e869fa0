// Tables with a caption, sorted by buttons in their headers.

// columns: {title, value(row), show(row, value) -> text or element, number}; rows without a value come last.
function makeTable({
  caption,
  columns,
  rows,
  sorted = null,
  descending = false,
  name = null,
  hideCaption = false,
  tall = false,
}) {
  const body = el("tbody");
  const heads = columns.map((column, place) =>
    el(
      "th",
      { scope: "col", class: column.number ? "number" : null, title: column.help || null },
      el(
        "button",
        { type: "button", class: "sort", onclick: () => sortBy(place) },
        column.title,
        el("span", { class: "arrow", "aria-hidden": "true" }),
      ),
    ),
  );
  const built = rows.map((row) => ({
    row,
    node: el(
      "tr",
      null,
      columns.map((column, place) => cell(column, row, place)),
    ),
  }));
  let state = { place: sorted, descending };

  function cell(column, row, place) {
    const value = column.value(row);
    const shown = column.show ? column.show(row, value) : exact(value);
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
  const frame = el(
    "div",
    { class: tall ? "scroll tall" : "scroll", role: "region", tabindex: 0, "aria-label": `${caption} (table)` },
    node,
  );
  return {
    node: frame,
    filter,
    csv: () =>
      toCsv(
        columns,
        built.filter((item) => !item.node.hidden),
      ),
  };
}

function compareValues(one, other, descending) {
  if (!known(one) || !known(other)) return known(one) ? -1 : known(other) ? 1 : 0;
  const order =
    typeof one === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
  return descending ? -order : order;
}

function toCsv(columns, built) {
  const quote = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const lines = [
    columns.map((column) => column.title),
    ...built.map((item) => columns.map((c) => exact(c.value(item.row)))),
  ];
  return lines.map((line) => line.map(quote).join(",")).join("\n") + "\n";
}

function csvButton(table, file) {
  return el(
    "button",
    { type: "button", class: "quiet", onclick: () => download(`${file}.csv`, "text/csv", table().csv()) },
    icon("save"),
    "CSV",
  );
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
    const select = el(
      "select",
      { id },
      el("option", { value: "" }, "all"),
      values.map((item, place) => el("option", { value: place }, show ? show(item) : String(item))),
    );
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
    found.textContent =
      shown === rows.length ? plural(rows.length, total) : `${count(shown)} of ${plural(rows.length, total)}`;
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

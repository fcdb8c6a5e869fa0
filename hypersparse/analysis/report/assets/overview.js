// The first page of several runs: headline numbers, method comparison, and the table of all runs.

const PICKED_ON_TEST =
  "“Best” is the best epoch, picked on the test set, which overestimates the accuracy. “Last” is the stored network.";

function bestNote(runs) {
  const picked = new Set(runs.map((run) => run.best_picked_on).filter(known));
  return picked.has("test") ? PICKED_ON_TEST : "The best epoch was picked on held-out images, not on the test set.";
}

function card(name, value, ...more) {
  const lines = more.filter(Boolean).map((words) => el("dd", { class: "small" }, words));
  return el("div", { class: "card number-card" }, el("dt", null, name), el("dd", { class: "big" }, value), lines);
}

function statesOf(runs) {
  const counts = new Map();
  for (const run of runs) {
    const word = run.status === "until" ? "ended early as requested" : run.status;
    counts.set(word, (counts.get(word) || 0) + 1);
  }
  return [...counts].map(([word, number]) => `${number} ${word}`).join(", ");
}

function headlines(data) {
  const damaged = data.problems.length ? `${data.problems.length} damaged` : null;
  const missing = data.missing ? `${data.missing} missing` : null;
  const cards = [card("Runs", count(data.runs.length), statesOf(data.runs), damaged, missing)];
  const add = (name, row) =>
    cards.push(
      card(
        name,
        `${withDeviation(row.last, row.last_deviation)}${SPACE}%`,
        `${row.method}, ${plural(row.seeds, "seed")}, last epoch`,
      ),
    );
  const single = data.comparison.length === 1;
  for (const group of data.comparison.slice(0, 6)) {
    const pruned = group.rows.filter((row) => known(row.sparsity));
    const levels = [...new Set(pruned.map((row) => row.sparsity))]
      .sort((one, other) => other - one)
      .slice(0, single ? 3 : 1)
      .reverse();
    for (const level of levels) {
      const best = pruned.filter((row) => row.sparsity === level).sort((one, other) => other.last - one.last)[0];
      add(`${single ? "Best" : `${group.data}, ${group.model}: best`} at ${sparsity(level)} sparsity`, best);
    }
    const dense = group.rows.find((row) => !known(row.sparsity));
    if (single && dense) add("Dense", dense);
  }
  const seconds = data.runs.reduce((sum, run) => sum + (run.seconds || 0) - (run.shared_seconds || 0), 0);
  const spent = data.runs.reduce((sum, run) => sum + (run.training_flops ?? NaN), 0);
  const cost = spent ? `${flops(spent)} without sharing` : null;
  cards.push(card("Total training time", duration(seconds), "shared phases are counted once", cost));
  return el("dl", { class: "cards spread" }, cards);
}

function comparisonSection(data) {
  if (!data.comparison.some((group) => group.rows.length > 1)) return null;
  const places = variantPlaces(data);
  const words = "Test accuracy in per cent, mean ± sample deviation over the seeds of finished runs. ";
  const groups = data.comparison.map((group) => groupSection(data, group, places));
  return section("comparison", "h2", "Method comparison", el("p", null, words, bestNote(data.runs)), groups);
}

// Each method keeps its colour and symbol in all charts of the page.
function variantPlaces(data) {
  const names = [...new Set(data.runs.map((run) => run.variant))];
  return Object.fromEntries(names.map((name, place) => [name, place]));
}

const COSTS = [
  { key: "training_flops", title: "Accuracy over training cost", axis: "training FLOPs (dense)", show: flops },
  {
    key: "training_flops_sparse",
    title: "Accuracy over training cost without zeros",
    axis: "training FLOPs without zeros",
    show: flops,
  },
  { key: "final_bytes", title: "Accuracy over size", axis: "file size in bytes", show: bytes },
];

function groupSection(data, group, places) {
  const runs = data.runs.filter((run) => run.status === "finished" && inGroup(run, group));
  const holder = el("div", { class: "figures" });
  const draw = (accuracy) => {
    dropCharts(holder);
    const charts = COSTS.map((cost) => scatter(group, runs, places, accuracy, cost));
    holder.replaceChildren(...[accuracyOverSparsity(group, places, accuracy), ...charts].filter(Boolean));
  };
  draw("last");
  const words = `${group.data}, ${group.model}`;
  const choice = accuracyChoice(group, draw);
  const parts = [el("h3", null, words), choice, holder, comparisonTable(group)];
  return el("section", { class: "group", "aria-label": words }, parts);
}

const inGroup = (run, group) => run.group[0] === group.data && run.group[1] === group.model;

function accuracyChoice(group, chosen) {
  const name = slug(`accuracy ${group.data} ${group.model}`);
  const choice = (value) => {
    const id = `${name}-${value}`;
    const state = { value, checked: value === "last", onchange: () => chosen(value) };
    return el("span", null, el("input", { type: "radio", name, id, ...state }), el("label", { for: id }, `${value} epoch`));
  };
  return el("fieldset", { class: "choice" }, el("legend", null, "Show accuracy of"), choice("last"), choice("best"));
}

function comparisonTable(group) {
  const mark = (row) => ({ 1: "first", 2: "second" })[row.place];
  const columns = [
    textColumn("method", (row) => row.method),
    numberColumn("sparsity", (row) => row.sparsity, sparsity, { unknown: "dense" }),
    numberColumn("last %", (row) => row.last, (last, row) => withDeviation(last, row.last_deviation), { mark }),
    numberColumn("best %", (row) => row.best, (best, row) => withDeviation(best, row.best_deviation)),
    numberColumn("seeds", (row) => row.seeds),
    numberColumn("epochs", (row) => row.epochs, (epochs) => epochs.toFixed(0)),
    numberColumn("weights", (row) => row.kept, count),
    numberColumn("size", (row) => row.final_bytes, bytes),
    numberColumn("training FLOPs", (row) => row.training_flops, flopsUnit),
    numberColumn("time", (row) => row.seconds, duration),
  ].filter((column) => group.rows.some((row) => known(column.value(row))));
  const table = makeTable({
    tall: true,
    caption: `Mean ± sample deviation by method and sparsity, ${group.data}, ${group.model}; the best of each sparsity in bold`,
    columns,
    rows: group.rows,
  });
  const save = csvButton(() => table, slug(`comparison ${group.data} ${group.model}`));
  return el("div", null, table.node, save);
}

function problemsSection(data) {
  if (!data.problems.length) return null;
  const items = data.problems.map((item) => el("li", null, el("code", null, item.run), ": ", item.problem));
  const words = `${plural(data.problems.length, "run")} could not be read`;
  return set(section("problems", "h2", words, el("ul", null, items)), { class: "notice" });
}

function overview(data) {
  return [headlines(data), problemsSection(data), comparisonSection(data), runsSection(data)];
}

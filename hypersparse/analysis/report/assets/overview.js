// The first page of several runs: headline numbers, method comparison, and the table of all runs.

const PICKED_ON_TEST =
  "“Best” is the best epoch, picked on the test set, which overestimates the accuracy. “Last” is the stored network.";

function bestNote(runs) {
  const picked = new Set(runs.map((run) => run.best_picked_on).filter(known));
  return picked.has("test") ? PICKED_ON_TEST : "The best epoch was picked on held-out images, not on the test set.";
}

function card(name, value, ...more) {
  return el(
    "div",
    { class: "card number-card" },
    el("dt", null, name),
    el("dd", { class: "big" }, value),
    more.filter(Boolean).map((words) => el("dd", { class: "small" }, words)),
  );
}

function statesOf(runs) {
  const counts = new Map();
  for (const run of runs) {
    const word =
      { finished: "finished", until: "ended early as requested", stopped: "stopped", running: "running" }[run.status] ||
      run.status;
    counts.set(word, (counts.get(word) || 0) + 1);
  }
  return [...counts].map(([word, number]) => `${number} ${word}`).join(", ");
}

function headlines(data) {
  const cards = [
    card(
      "Runs",
      count(data.runs.length),
      statesOf(data.runs),
      data.problems.length ? `${data.problems.length} damaged` : null,
      data.missing ? `${data.missing} missing` : null,
    ),
  ];
  const single = data.comparison.length === 1;
  for (const group of data.comparison.slice(0, 6)) {
    const pruned = group.rows.filter((row) => known(row.sparsity));
    const levels = [...new Set(pruned.map((row) => row.sparsity))]
      .sort((one, other) => other - one)
      .slice(0, single ? 3 : 1)
      .reverse();
    for (const level of levels) {
      const best = pruned.filter((row) => row.sparsity === level).sort((one, other) => other.last - one.last)[0];
      const where = single ? "" : `${group.data}, ${group.model}: `;
      cards.push(
        card(
          `${where}${single ? "Best" : "best"} at ${sparsity(level)} sparsity`,
          `${withDeviation(best.last, best.last_deviation)}${SPACE}%`,
          `${best.method}, ${plural(best.seeds, "seed")}, last epoch`,
        ),
      );
    }
    const dense = group.rows.find((row) => !known(row.sparsity));
    if (single && dense)
      cards.push(
        card(
          "Dense",
          `${withDeviation(dense.last, dense.last_deviation)}${SPACE}%`,
          `${dense.method}, ${plural(dense.seeds, "seed")}, last epoch`,
        ),
      );
  }
  const seconds = data.runs.reduce((sum, run) => sum + (run.seconds || 0) - (run.shared_seconds || 0), 0);
  const spent = data.runs.every((run) => known(run.training_flops))
    ? data.runs.reduce((sum, run) => sum + run.training_flops, 0)
    : null;
  cards.push(
    card(
      "Total training time",
      duration(seconds),
      "shared phases are counted once",
      spent ? `${flops(spent)} without sharing` : null,
    ),
  );
  return el("dl", { class: "cards spread" }, cards);
}

function comparisonSection(data) {
  if (!data.comparison.some((group) => group.rows.length > 1)) return null;
  const places = variantPlaces(data);
  return el(
    "section",
    { id: "comparison", "aria-labelledby": "comparison-title" },
    el("h2", { id: "comparison-title" }, "Method comparison"),
    el(
      "p",
      null,
      "Test accuracy in per cent, mean ± sample deviation over the seeds of finished runs. ",
      bestNote(data.runs),
    ),
    data.comparison.map((group) => groupSection(data, group, places)),
  );
}

// Each method keeps its colour and symbol in all charts of the page.
function variantPlaces(data) {
  const names = [...new Set(data.runs.map((run) => run.variant))];
  return Object.fromEntries(names.map((name, place) => [name, place]));
}

function groupSection(data, group, places) {
  const runs = data.runs.filter((run) => run.status === "finished" && inGroup(run, group));
  const state = { accuracy: "last" };
  const holder = el("div", { class: "figures" });
  const draw = () => {
    dropCharts(holder);
    holder.replaceChildren(
      ...[
        accuracyOverSparsity(group, places, state.accuracy),
        scatter(group, runs, places, state.accuracy, {
          key: "training_flops",
          title: "Accuracy over training cost",
          axis: "training FLOPs (dense)",
          show: flops,
        }),
        scatter(group, runs, places, state.accuracy, {
          key: "training_flops_sparse",
          title: "Accuracy over training cost without zeros",
          axis: "training FLOPs without zeros",
          show: flops,
        }),
        scatter(group, runs, places, state.accuracy, {
          key: "final_bytes",
          title: "Accuracy over size",
          axis: "file size in bytes",
          show: bytes,
        }),
      ].filter(Boolean),
    );
  };
  draw();
  const heading = `${group.data}, ${group.model}`;
  return el(
    "section",
    { class: "group", "aria-label": heading },
    el("h3", null, heading),
    accuracyChoice(group, (chosen) => {
      state.accuracy = chosen;
      draw();
    }),
    holder,
    comparisonTable(group),
  );
}

const inGroup = (run, group) => run.group[0] === group.data && run.group[1] === group.model;

function accuracyChoice(group, chosen) {
  const name = slug(`accuracy ${group.data} ${group.model}`);
  const choice = (value, words) => {
    const input = el("input", {
      type: "radio",
      name,
      id: `${name}-${value}`,
      value,
      checked: value === "last",
      onchange: () => chosen(value),
    });
    return [input, el("label", { for: `${name}-${value}` }, words)];
  };
  return el(
    "fieldset",
    { class: "choice" },
    el("legend", null, "Show accuracy of"),
    choice("last", "last epoch"),
    choice("best", "best epoch"),
  );
}

function comparisonTable(group) {
  const mark = (row) => ({ 1: "first", 2: "second" })[row.place];
  const columns = [
    { title: "method", value: (row) => row.method },
    {
      title: "sparsity",
      number: true,
      value: (row) => row.sparsity,
      show: (row, value) => (known(value) ? sparsity(value) : "dense"),
    },
    {
      title: "last %",
      number: true,
      mark,
      value: (row) => row.last,
      show: (row) => withDeviation(row.last, row.last_deviation),
    },
    {
      title: "best %",
      number: true,
      value: (row) => row.best,
      show: (row) => withDeviation(row.best, row.best_deviation),
    },
    { title: "seeds", number: true, value: (row) => row.seeds },
    { title: "epochs", number: true, value: (row) => row.epochs, show: (row, value) => value.toFixed(0) },
    { title: "weights", number: true, value: (row) => row.kept, show: (row, value) => count(value) },
    { title: "size", number: true, value: (row) => row.final_bytes, show: (row, value) => bytes(value) },
    {
      title: "training FLOPs",
      number: true,
      value: (row) => row.training_flops,
      show: (row, value) => flops(value).replace("FLOPs", ""),
    },
    { title: "time", number: true, value: (row) => row.seconds, show: (row, value) => duration(value) },
  ].filter((column) => group.rows.some((row) => known(column.value(row))));
  const table = makeTable({
    tall: true,
    caption: `Mean ± sample deviation by method and sparsity, ${group.data}, ${group.model}; the best of each sparsity in bold`,
    columns,
    rows: group.rows,
  });
  return el(
    "div",
    null,
    table.node,
    csvButton(() => table, slug(`comparison ${group.data} ${group.model}`)),
  );
}

function problemsSection(data) {
  if (!data.problems.length) return null;
  return el(
    "section",
    { class: "notice", "aria-labelledby": "problems-title" },
    el(
      "h2",
      { id: "problems-title" },
      data.problems.length === 1
        ? "1 run could not be read"
        : `${data.problems.length} runs could not be read`,
    ),
    el(
      "ul",
      null,
      data.problems.map((item) => el("li", null, el("code", null, item.run), ": ", item.problem)),
    ),
  );
}

function overview(data) {
  return [headlines(data), problemsSection(data), comparisonSection(data), runsSection(data)];
}

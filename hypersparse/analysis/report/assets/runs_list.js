// The table of all runs, with its filters.

const about = (run) => `${run.variant}, ${run.sparsity ? `${sparsity(run.sparsity)}, ` : ""}seed ${run.seed}`;

function stateBadge(run) {
  return el("span", { class: `badge ${run.status}` }, run.state);
}

function runsSection(data) {
  const accuracy = (title, key, which) =>
    numberColumn(title, (run) => run[key], points, { help: `test accuracy of the ${which} epoch` });
  const shows = (column) => {
    const values = new Set(data.runs.map(column.value).filter(known));
    return values.size > (column.vary ? 1 : 0);
  };
  const columns = [
    textColumn("run", (run) => run.name, { show: (name, run) => el("a", { href: `#${run.id}` }, name) }),
    textColumn("data", (run) => run.data, { vary: true }),
    textColumn("model", (run) => run.model, { vary: true }),
    textColumn("method", (run) => run.variant),
    numberColumn("sparsity", (run) => run.sparsity, sparsity),
    numberColumn("seed", (run) => run.seed),
    textColumn("state", (run) => run.state, { show: (_, run) => stateBadge(run) }),
    accuracy("last %", "sparse_last", "sparse network in the last"),
    accuracy("best %", "sparse_best", "sparse network in the best"),
    accuracy("dense %", "dense_last", "dense network in its last"),
    numberColumn("weights", (run) => run.kept, count),
    numberColumn("size", (run) => run.final_bytes, bytes),
    numberColumn("FLOPs", (run) => run.training_flops, flopsUnit),
    numberColumn("epochs", (run) => run.epochs),
    numberColumn("time", (run) => run.seconds, duration),
  ].filter(shows);
  const table = makeTable({ caption: "All runs", hideCaption: true, columns, rows: data.runs, name: "runs-table" });
  const words = (run) => [run.label, run.name, run.variant, run.state, run.data, run.model, `seed ${run.seed}`];
  const text = new Map(data.runs.map((run) => [run, words(run).join(" ").toLowerCase()]));
  const curves = el("div", { class: "figures" });
  const filters = makeFilters(
    table,
    data.runs,
    [
      { title: "Data", value: (run) => run.data },
      { title: "Model", value: (run) => run.model },
      { title: "Method", value: (run) => run.variant },
      { title: "Sparsity", value: (run) => run.sparsity, show: sparsity },
      { title: "State", value: (run) => run.status },
    ],
    (run) => text.get(run),
    "run",
    (shown) => {
      dropCharts(curves);
      curves.replaceChildren(...[accuracyOverEpochs(shown, variantPlaces(data))].filter(Boolean));
    },
  );
  const save = csvButton(() => table, "runs");
  return section("runs", "h2", "Runs", filters, table.node, save, small(bestNote(data.runs)), curves);
}

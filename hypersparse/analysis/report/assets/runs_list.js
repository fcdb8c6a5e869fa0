// The table of all runs with its filters, and the curves of the runs that it shows.

const MOST_CURVES = 24;

const about = (run) => `${run.variant}, ${run.sparsity ? `${sparsity(run.sparsity)}, ` : ""}seed ${run.seed}`;

function stateBadge(run) {
  return el("span", { class: `badge ${run.status}` }, run.state);
}

function runsSection(data) {
  const link = (run) => el("a", { href: `#${run.id}` }, run.name);
  const columns = [
    { title: "run", value: (run) => run.name, show: link },
    { title: "data", value: (run) => run.data, vary: true },
    { title: "model", value: (run) => run.model, vary: true },
    { title: "method", value: (run) => run.variant },
    { title: "sparsity", number: true, value: (run) => run.sparsity, show: (run, value) => sparsity(value) },
    { title: "seed", number: true, value: (run) => run.seed },
    { title: "state", value: (run) => run.state, show: stateBadge },
    {
      title: "last %",
      number: true,
      help: "test accuracy of the sparse network in the last epoch",
      value: (run) => run.sparse_last,
      show: (run, value) => (known(value) ? (100 * value).toFixed(2) : ""),
    },
    {
      title: "best %",
      number: true,
      help: "test accuracy of the sparse network in the best epoch",
      value: (run) => run.sparse_best,
      show: (run, value) => (known(value) ? (100 * value).toFixed(2) : ""),
    },
    {
      title: "dense %",
      number: true,
      help: "test accuracy of the dense network in its last epoch",
      value: (run) => run.dense_last,
      show: (run, value) => (known(value) ? (100 * value).toFixed(2) : ""),
    },
    { title: "weights", number: true, value: (run) => run.kept, show: (run, value) => count(value) },
    { title: "size", number: true, value: (run) => run.final_bytes, show: (run, value) => bytes(value) },
    {
      title: "FLOPs",
      number: true,
      value: (run) => run.training_flops,
      show: (run, value) => flops(value).replace("FLOPs", ""),
    },
    { title: "epochs", number: true, value: (run) => run.epochs },
    { title: "time", number: true, value: (run) => run.seconds, show: (run, value) => duration(value) },
  ].filter(
    (column) =>
      data.runs.some((run) => known(column.value(run))) &&
      (!column.vary || new Set(data.runs.map(column.value)).size > 1),
  );
  const table = makeTable({ caption: "All runs", hideCaption: true, columns, rows: data.runs, name: "runs-table" });
  const text = new Map(
    data.runs.map((run) => [
      run,
      [run.label, run.name, run.variant, run.state, run.data, run.model, `seed ${run.seed}`].join(" ").toLowerCase(),
    ]),
  );
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
      curves.replaceChildren(...[overlay(shown, variantPlaces(data))].filter(Boolean));
    },
  );
  return el(
    "section",
    { id: "runs", "aria-labelledby": "runs-title" },
    el("h2", { id: "runs-title" }, "Runs"),
    filters,
    table.node,
    csvButton(() => table, "runs"),
    el("p", { class: "small" }, bestNote(data.runs)),
    curves,
  );
}

// Test accuracy of several runs in one chart: a colour for each method, a dash for each sparsity.
function overlay(shown, places) {
  const all = shown.filter((run) => run.curves.test_accuracy);
  const runs = [...all].sort((one, other) => one.seed - other.seed).slice(0, MOST_CURVES); // so that every variant is shown
  if (runs.length < 2) return null;
  const epochs = Math.max(...runs.map((run) => run.epochs));
  const levels = [...new Set(runs.map((run) => run.sparsity))].sort((one, other) => one - other);
  const lines = runs.map((run) => ({
    run,
    name: run.variant,
    color: places[run.variant],
    dash: DASHES[levels.indexOf(run.sparsity) % DASHES.length],
    values: unpack(run.curves.test_accuracy, epochs).map((value) => (known(value) ? 100 * value : null)),
  }));
  const names = [...new Set(lines.map((line) => line.name))];
  const at = (epoch, hidden) =>
    lines
      .filter((line) => known(line.values[epoch]) && !hidden?.has(line.name))
      .sort((one, other) => other.values[epoch] - one.values[epoch]);
  const words = (line, epoch) => `${line.values[epoch].toFixed(2)}${SPACE}%`;
  const dashes =
    levels.length > 1
      ? ` Dash by sparsity: ${levels.map((level, place) => `${sparsity(level)} ${["solid", "dashed", "dotted", "dash-dotted"][place % 4]}`).join(", ")}.`
      : "";
  return makeChart({
    title: "Test accuracy over the epochs",
    heads: "h3",
    wide: true,
    height: 400,
    zoom: "xy",
    summary:
      (all.length > runs.length
        ? `${runs.length} of the ${all.length} runs in the table, lowest seeds first. Filter the table to see others.`
        : `The ${runs.length} runs in the table.`) + dashes,
    legend: names.map((name) => ({ name, color: places[name], show: exact })),
    axisTip: (params) => {
      const epoch = params[0].value[0];
      const visible = new Set(params.map((one) => one.seriesName));
      return tipOf(
        `epoch ${epoch}`,
        at(epoch)
          .filter((line) => visible.has(line.name))
          .slice(0, 12)
          .map((line) => [{ ...line, name: about(line.run) }, words(line, epoch)]),
      );
    },
    points: epochs,
    point: (epoch, hidden) => ({
      words: `epoch ${epoch}: ${at(epoch, hidden)
        .map((line) => `${about(line.run)} ${words(line, epoch)}`)
        .join("; ")}`,
      action: {
        seriesIndex: lines.findIndex((line) => known(line.values[epoch]) && !hidden.has(line.name)),
        dataIndex: epoch,
      },
    }),
    table: () => ({
      columns: [
        { title: "epoch", number: true, value: (epoch) => epoch },
        ...lines.map((line) => ({
          title: about(line.run),
          number: true,
          value: (epoch) => line.values[epoch],
          show: (_, value) => (known(value) ? value.toFixed(2) : ""),
        })),
      ],
      rows: [...Array(epochs).keys()],
    }),
    option: (style) => ({
      grid: plot(),
      xAxis: crossAxis(style, "epoch", { min: 0, max: Math.max(1, epochs - 1), minInterval: 1 }),
      yAxis: valueAxis(style, "test accuracy in %", { max: 100 }),
      series: lines.map((line) => ({
        type: "line",
        name: line.name,
        color: colorOf(style, line.color),
        showSymbol: false,
        data: line.values.map((value, epoch) => [epoch, value]),
        lineStyle: { width: 1.5, type: line.dash, opacity: 0.9 },
        emphasis: { disabled: true },
      })),
    }),
  });
}

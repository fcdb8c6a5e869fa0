// The table of all runs with its filters, and the curves of the runs that it shows.

const MOST_CURVES = 24;

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
      curves.replaceChildren(...[overlay(shown, variantPlaces(data))].filter(Boolean));
    },
  );
  const save = csvButton(() => table, "runs");
  return section("runs", "h2", "Runs", filters, table.node, save, small(bestNote(data.runs)), curves);
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
  const words = (line, epoch) => shownPercent(line.values[epoch]);
  const dashNames = ["solid", "dashed", "dotted", "dash-dotted"];
  const dashOfLevel = levels.map((level, place) => `${sparsity(level)} ${dashNames[place % 4]}`);
  const dashes = levels.length > 1 ? ` Dash by sparsity: ${dashOfLevel.join(", ")}.` : "";
  return makeChart({
    title: "Test accuracy over the epochs",
    headingTag: "h3",
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
        numberColumn("epoch", (epoch) => epoch),
        ...lines.map((line) => numberColumn(about(line.run), (epoch) => line.values[epoch], hundredths)),
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

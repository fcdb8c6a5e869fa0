// The charts of several runs: accuracy over sparsity, over training cost, over size and over the epochs.

const MOST_CURVES = 24; // over the epochs, in one chart
const densityPosition = (value) => -Math.log10(1 - value); // on a logarithmic axis of the density

function accuracyOverSparsity(group, places, key) {
  const pruned = group.rows.filter((row) => known(row.sparsity));
  const levels = [...new Set(pruned.map((row) => row.sparsity))].filter((level) => level < 1).sort((a, b) => a - b);
  if (levels.length < 2) return null;
  const names = [...new Set(pruned.map((row) => row.method))];
  const dense = group.rows.filter((row) => !known(row.sparsity));
  const words = (row) => `${withDeviation(row[key], row[`${key}_deviation`])} %, ${plural(row.seeds, "seed")}`;
  const find = (name, x) =>
    group.rows.find((row) => row.method === name && (!known(row.sparsity) || Math.abs(densityPosition(row.sparsity) - x) < 1e-9));
  const legend = [
    ...names.map((name) => ({ ...keyOf(name, places), dash: dashOf(places[name]) })),
    ...dense.map((row) => ({ name: row.method, color: places[row.method], dash: DASHES[2], show: exact })),
  ];
  const step = (densityPosition(levels.at(-1)) - densityPosition(levels[0])) * 0.06;
  const ends = [densityPosition(levels[0]) - step, densityPosition(levels.at(-1)) + step];
  const tips = (x) => legend.filter((item) => find(item.name, x)).map((item) => [item, words(find(item.name, x))]);
  return makeChart({
    title: `Accuracy over sparsity (${key} epoch)`,
    summary: leaders(group, levels, key),
    legend,
    zoom: "xy",
    height: 340,
    table: () => ({ columns: longColumns(key), rows: group.rows }),
    points: levels.length,
    point: (at, hidden) => ({
      words: `${sparsity(levels[at])}: ${tips(densityPosition(levels[at]))
        .filter(([item]) => !hidden.has(item.name))
        .map(([item, said]) => `${item.name} ${said}`)
        .join("; ")}`,
      action: showAt(names, at, hidden),
    }),
    axisTip: (params) => {
      const level = levels.find((value) => params.some((one) => Math.abs(densityPosition(value) - one.value[0]) < 1e-9));
      return known(level) ? tipOf(sparsity(level), tips(densityPosition(level))) : null;
    },
    option: (style) => ({
      grid: plot(),
      xAxis: crossAxis(style, "sparsity", {
        min: ends[0],
        max: ends[1],
        axisTick: { customValues: levels.map(densityPosition) },
        axisLabel: { customValues: levels.map(densityPosition), formatter: (x) => sparsity(+(1 - 10 ** -x).toFixed(6)) },
      }),
      yAxis: valueAxis(style, "test accuracy in %", { max: ceiling(group.rows, key) }),
      series: [
        ...names.flatMap((name) => lineWithBars(pruned.filter((row) => row.method === name), places[name], key, style)),
        ...dense.map((row) => ({
          type: "line",
          name: row.method,
          symbol: "none",
          data: ends.map((x) => [x, row[key]]),
          color: colorOf(style, places[row.method]),
          lineStyle: { type: DASHES[2], width: 2 },
        })),
      ],
    }),
  });
}

const keyOf = (name, places) => ({ name, color: places[name], symbol: symbolOf(places[name]), show: exact });

function showAt(names, at, hidden) {
  const first = names.findIndex((name) => !hidden.has(name));
  return { seriesIndex: 2 * Math.max(0, first), dataIndex: at }; // each name has a line and its bars
}

function leaders(group, levels, key) {
  const descending = [...group.rows].sort((one, other) => other[key] - one[key]);
  const best = levels.map((level) => descending.find((row) => row.sparsity === level));
  const words = (row) => `${withDeviation(row[key], row[`${key}_deviation`])} % at ${sparsity(row.sparsity)}`;
  if (best.every((row) => row.method === best[0].method))
    return `${best[0].method} leads at every sparsity: ${best.map(words).join(", ")}.`;
  return `Best of each sparsity: ${best.map((row) => `${row.method} with ${words(row)}`).join("; ")}.`;
}

function longColumns(key) {
  const thousandths = (value) => value.toFixed(3);
  return [
    textColumn("method", (row) => row.method),
    numberColumn("sparsity", (row) => row.sparsity, sparsity),
    numberColumn(`${key} %`, (row) => row[key], thousandths),
    numberColumn("deviation", (row) => row[`${key}_deviation`], thousandths),
    numberColumn("seeds", (row) => row.seeds),
  ];
}

function lineWithBars(rows, number, key, style) {
  const sorted = [...rows].sort((one, other) => one.sparsity - other.sparsity);
  const [name, color] = [rows[0].method, colorOf(style, number)];
  const spread = (row) => row[`${key}_deviation`];
  const line = {
    type: "line",
    name,
    color,
    ...marker(style, number, 8),
    data: sorted.map((row) => [densityPosition(row.sparsity), row[key]]),
    lineStyle: { width: 2, color, type: dashOf(number) },
    emphasis: { focus: "series" },
  };
  const bars = {
    type: "custom",
    name,
    color,
    silent: true,
    tooltip: { show: false },
    z: 1,
    data: sorted.filter(spread).map((row) => [densityPosition(row.sparsity), row[key] - spread(row), row[key] + spread(row)]),
    encode: { x: 0, y: [1, 2] },
    renderItem: (_, api) => whiskers(...[1, 2].map((end) => api.coord([api.value(0), api.value(end)])), color),
  };
  return [line, bars];
}

function whiskers([x, low], [, high], color) {
  const style = { stroke: color, lineWidth: 1.4, opacity: 0.75 };
  const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
  const children = [line(x, low, x, high), line(x - 4, low, x + 4, low), line(x - 4, high, x + 4, high)];
  return { type: "group", children };
}

function scatter(group, runs, places, key, { key: cost, title, axis, show }) {
  const there = runs.filter((run) => known(run[cost]) && known(accuracyOf(run, key)));
  if (there.length < 2) return null;
  const names = [...new Set(there.map((run) => run.variant))];
  const legend = names.map((name) => ({ ...keyOf(name, places), line: false }));
  const values = (run) => [`${(100 * accuracyOf(run, key)).toFixed(2)} %`, show(run[cost])];
  const ordered = [...there].sort((one, other) => one[cost] - other[cost]);
  const own = (name) => ordered.filter((run) => run.variant === name);
  const top = [...there].sort((one, other) => accuracyOf(other, key) - accuracyOf(one, key))[0];
  return makeChart({
    title: `${title} (${key} epoch)`,
    summary: `One point per run. The best is ${about(top)} with ${values(top).join(" at ")}. Select a point to open its run.`,
    legend,
    zoom: "xy",
    height: 340,
    tip: ({ data }) =>
      tipOf(about(data.run), [[legend.find((item) => item.name === data.run.variant), values(data.run).join(" · ")]]),
    click: ({ data }) => data && data.run && go(data.run.id),
    table: () => ({
      columns: [
        textColumn("run", about, { show: (words, run) => el("a", { href: `#${run.id}` }, words) }),
        numberColumn(`${key} %`, (run) => +(100 * accuracyOf(run, key)).toFixed(4), hundredths),
        numberColumn(axis, (run) => run[cost], count),
      ],
      rows: ordered,
    }),
    points: ordered.length,
    point: (at) => {
      const run = ordered[at];
      return {
        words: `${about(run)}: ${values(run).join(" at ")}`,
        action: { seriesIndex: names.indexOf(run.variant), dataIndex: own(run.variant).indexOf(run) },
      };
    },
    option: (style) => ({
      grid: plot(),
      xAxis: crossAxis(style, axis, logarithmic(there.map((run) => run[cost]))),
      yAxis: valueAxis(style, "test accuracy in %", { max: ceiling(group.rows, key) }),
      series: names.map((name) => ({
        type: "scatter",
        name,
        ...marker(style, places[name], 10),
        cursor: "pointer",
        data: own(name).map((run) => ({ value: [run[cost], 100 * accuracyOf(run, key)], run })),
      })),
    }),
  });
}

// Room above the highest point, but none above 100 %.
const ceiling = (rows, key) =>
  Math.min(100, Math.ceil(Math.max(...rows.map((row) => row[key] + (row[`${key}_deviation`] || 0))) + 0.5));

const accuracyOf = (run, key) =>
  key === "last" ? (run.sparse_last ?? run.dense_last) : (run.sparse_best ?? run.dense_best);

// Test accuracy of several runs in one chart: a colour for each method, a dash for each sparsity.
function accuracyOverEpochs(shown, places) {
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

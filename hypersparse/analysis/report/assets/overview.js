// The first page of several runs: headline numbers, methods beside each other, and the table of all runs.

const FLATTERS = "“Best” is the best epoch as picked on the test set, so it flatters; “last” is what a user gets.";

function bestNote(runs) {
  const picked = new Set(runs.map((run) => run.best_picked_on).filter(known));
  return picked.has("test") ? FLATTERS : "The best epoch was picked on held-out images, not on the test set.";
}

function card(name, value, ...more) {
  return el("div", { class: "card number-card" }, el("dt", null, name), el("dd", { class: "big" }, value), more.filter(Boolean).map((words) => el("dd", { class: "small" }, words)));
}

function statesOf(runs) {
  const counts = new Map();
  for (const run of runs) {
    const word = { finished: "finished", until: "ended early as asked", stopped: "stopped", running: "running" }[run.status] || run.status;
    counts.set(word, (counts.get(word) || 0) + 1);
  }
  return [...counts].map(([word, number]) => `${number} ${word}`).join(", ");
}

function headlines(data) {
  const cards = [card("Runs", count(data.runs.length), statesOf(data.runs), data.problems.length ? `${data.problems.length} damaged` : null, data.missing ? `${data.missing} not there yet` : null)];
  const single = data.comparison.length === 1;
  for (const group of data.comparison.slice(0, 6)) {
    const pruned = group.rows.filter((row) => known(row.sparsity));
    const levels = [...new Set(pruned.map((row) => row.sparsity))].sort((one, other) => other - one).slice(0, single ? 3 : 1).reverse();
    for (const level of levels) {
      const best = pruned.filter((row) => row.sparsity === level).sort((one, other) => other.last - one.last)[0];
      const where = single ? "" : `${group.data}, ${group.model}: `;
      cards.push(card(`${where}${single ? "Best" : "best"} at ${sparsity(level)} sparsity`, `${withDeviation(best.last, best.last_deviation)}${SPACE}%`, `${best.method}, ${plural(best.seeds, "seed")}, last epoch`));
    }
    const dense = group.rows.find((row) => !known(row.sparsity));
    if (single && dense) cards.push(card("Without pruning", `${withDeviation(dense.last, dense.last_deviation)}${SPACE}%`, `${dense.method}, ${plural(dense.seeds, "seed")}, last epoch`));
  }
  const seconds = data.runs.reduce((sum, run) => sum + (run.seconds || 0) - (run.shared_seconds || 0), 0);
  const spent = data.runs.every((run) => known(run.training_flops)) ? data.runs.reduce((sum, run) => sum + run.training_flops, 0) : null;
  cards.push(card("Training in all", duration(seconds), "what runs share is counted once", spent ? `${flops(spent)} as if each trained alone` : null));
  return el("dl", { class: "cards" }, cards);
}

function comparisonSection(data) {
  if (!data.comparison.some((group) => group.rows.length > 1)) return null;
  const places = variantPlaces(data);
  return el("section", { id: "comparison", "aria-labelledby": "comparison-title" },
    el("h2", { id: "comparison-title" }, "Methods beside each other"),
    el("p", null, "Mean ± sample deviation over the seeds, in per cent of the test images, of finished runs. ", bestNote(data.runs)),
    data.comparison.map((group) => groupSection(data, group, places)));
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
    holder.replaceChildren(...[
      oversparsity(group, places, state.accuracy),
      scatter(group, runs, places, state.accuracy, { key: "training_flops", title: "Accuracy over training cost", axis: "FLOPs of training, as computed", show: flops }),
      scatter(group, runs, places, state.accuracy, { key: "training_flops_sparse", title: "Accuracy over training cost on kept weights", axis: "FLOPs of training without those on zeros", show: flops }),
      scatter(group, runs, places, state.accuracy, { key: "final_bytes", title: "Accuracy over size", axis: "bytes of the stored network", show: bytes }),
    ].filter(Boolean));
  };
  draw();
  const heading = `${group.data}, ${group.model}`;
  return el("section", { class: "group", "aria-label": heading },
    el("h3", null, heading), accuracyChoice(group, (chosen) => { state.accuracy = chosen; draw(); }), holder, comparisonTable(group));
}

const inGroup = (run, group) => run.group[0] === group.data && run.group[1] === group.model;

function accuracyChoice(group, chosen) {
  const name = slug(`accuracy ${group.data} ${group.model}`);
  const choice = (value, words) => {
    const input = el("input", { type: "radio", name, id: `${name}-${value}`, value, checked: value === "last", onchange: () => chosen(value) });
    return [input, el("label", { for: `${name}-${value}` }, words)];
  };
  return el("fieldset", { class: "choice" }, el("legend", null, "Charts show"), choice("last", "last epoch"), choice("best", "best epoch"));
}

function comparisonTable(group) {
  const mark = (row) => ({ 1: "first", 2: "second" })[row.place];
  const columns = [
    { title: "method", value: (row) => row.method },
    { title: "sparsity", number: true, value: (row) => row.sparsity, show: (row, value) => (known(value) ? sparsity(value) : "dense") },
    { title: "last %", number: true, mark, value: (row) => row.last, show: (row) => withDeviation(row.last, row.last_deviation) },
    { title: "best %", number: true, value: (row) => row.best, show: (row) => withDeviation(row.best, row.best_deviation) },
    { title: "seeds", number: true, value: (row) => row.seeds },
    { title: "epochs", number: true, value: (row) => row.epochs, show: (row, value) => value.toFixed(0) },
    { title: "weights", number: true, value: (row) => row.kept, show: (row, value) => count(value) },
    { title: "size", number: true, value: (row) => row.final_bytes, show: (row, value) => bytes(value) },
    { title: "training FLOPs", number: true, value: (row) => row.training_flops, show: (row, value) => flops(value).replace("FLOPs", "") },
    { title: "time", number: true, value: (row) => row.seconds, show: (row, value) => duration(value) },
  ].filter((column) => group.rows.some((row) => known(column.value(row))));
  const table = makeTable({ tall: true, caption: `Mean ± deviation a method and sparsity, ${group.data}, ${group.model}; the best of each sparsity in bold`, columns, rows: group.rows });
  return el("div", null, table.node, csvButton(() => table, slug(`comparison ${group.data} ${group.model}`)));
}

const place = (value) => -Math.log10(1 - value); // sparsities as even steps of what is left

function oversparsity(group, places, key) {
  const levels = [...new Set(group.rows.map((row) => row.sparsity).filter((value) => known(value) && value < 1))].sort((a, b) => a - b);
  if (levels.length < 2) return null;
  const names = [...new Set(group.rows.filter((row) => known(row.sparsity)).map((row) => row.method))];
  const dense = group.rows.filter((row) => !known(row.sparsity));
  const words = (row) => `${withDeviation(row[key], row[`${key}_deviation`])} %, ${plural(row.seeds, "seed")}`;
  const find = (name, x) => group.rows.find((row) => row.method === name && (!known(row.sparsity) || Math.abs(place(row.sparsity) - x) < 1e-9));
  const legend = [...names.map((name) => ({ name, color: places[name], symbol: symbolOf(places[name]), dash: dashOf(places[name]), show: exact })),
    ...dense.map((row) => ({ name: row.method, color: places[row.method], dash: DASHES[2], show: exact }))];
  const step = (place(levels.at(-1)) - place(levels[0])) * 0.06;
  const ends = [place(levels[0]) - step, place(levels.at(-1)) + step];
  const tips = (x) => legend.filter((item) => find(item.name, x)).map((item) => [item, words(find(item.name, x))]);
  return makeChart({
    title: `Accuracy over sparsity (${key} epoch)`,
    summary: leaders(group, levels, key),
    legend, zoom: "xy", height: 340,
    table: () => ({ columns: longColumns(key), rows: group.rows }),
    points: levels.length,
    point: (at, hidden) => ({
      words: `${sparsity(levels[at])}: ${tips(place(levels[at])).filter(([item]) => !hidden.has(item.name)).map(([item, said]) => `${item.name} ${said}`).join("; ")}`,
      action: showAt(names, at, hidden),
    }),
    axisTip: (params) => {
      const level = levels.find((value) => params.some((one) => Math.abs(place(value) - one.value[0]) < 1e-9));
      return known(level) ? tipOf(sparsity(level), tips(place(level))) : null;
    },
    option: (style) => ({
      grid: plot(),
      xAxis: crossAxis(style, "sparsity", {
        min: ends[0], max: ends[1], axisTick: { customValues: levels.map(place) },
        axisLabel: { customValues: levels.map(place), formatter: (x) => sparsity(+(1 - 10 ** -x).toFixed(6)) },
      }),
      yAxis: valueAxis(style, "test accuracy in %", { max: ceiling(group.rows, key) }),
      series: [...names.flatMap((name) => lineWithBars(group.rows.filter((row) => row.method === name), name, places[name], key, style)),
        ...dense.map((row) => ({
          type: "line", name: row.method, symbol: "none", data: ends.map((x) => [x, row[key]]), color: colorOf(style, places[row.method]), lineStyle: { type: DASHES[2], width: 2 },
        }))],
    }),
  });
}

const showAt = (names, at, hidden) => ({ seriesIndex: 2 * Math.max(0, names.findIndex((name) => !hidden.has(name))), dataIndex: at });

function leaders(group, levels, key) {
  return levels.map((level) => {
    const best = group.rows.filter((row) => row.sparsity === level).sort((one, other) => other[key] - one[key])[0];
    return `At ${sparsity(level)} ${best.method} leads with ${withDeviation(best[key], best[`${key}_deviation`])} %.`;
  }).join(" ");
}

function longColumns(key) {
  return [
    { title: "method", value: (row) => row.method },
    { title: "sparsity", number: true, value: (row) => row.sparsity, show: (row, value) => sparsity(value) },
    { title: `${key} %`, number: true, value: (row) => row[key], show: (row, value) => value.toFixed(3) },
    { title: "deviation", number: true, value: (row) => row[`${key}_deviation`], show: (row, value) => (known(value) ? value.toFixed(3) : "") },
    { title: "seeds", number: true, value: (row) => row.seeds },
  ];
}

function lineWithBars(rows, name, number, key, style) {
  const sorted = [...rows].sort((one, other) => one.sparsity - other.sparsity);
  const color = colorOf(style, number);
  const line = {
    type: "line", name, color, ...marker(style, number, 8), data: sorted.map((row) => [place(row.sparsity), row[key]]),
    lineStyle: { width: 2, color, type: dashOf(number) }, emphasis: { focus: "series" },
  };
  const bars = {
    type: "custom", name, color, silent: true, tooltip: { show: false }, z: 1,
    data: sorted.filter((row) => row[`${key}_deviation`]).map((row) => [place(row.sparsity), row[key] - row[`${key}_deviation`], row[key] + row[`${key}_deviation`]]),
    encode: { x: 0, y: [1, 2] },
    renderItem: (_, api) => whiskers(api.coord([api.value(0), api.value(1)]), api.coord([api.value(0), api.value(2)]), color),
  };
  return [line, bars];
}

function whiskers([x, low], [, high], color) {
  const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: color, lineWidth: 1.4, opacity: 0.75 } });
  return { type: "group", children: [line(x, low, x, high), line(x - 4, low, x + 4, low), line(x - 4, high, x + 4, high)] };
}

function scatter(group, runs, places, key, { key: cost, title, axis, show }) {
  const there = runs.filter((run) => known(run[cost]) && known(accuracyOf(run, key)));
  if (there.length < 2) return null;
  const names = [...new Set(there.map((run) => run.variant))];
  const legend = names.map((name) => ({ name, color: places[name], symbol: symbolOf(places[name]), line: false, show: exact }));
  const values = (run) => [`${(100 * accuracyOf(run, key)).toFixed(2)} %`, show(run[cost])];
  const ordered = [...there].sort((one, other) => one[cost] - other[cost]);
  const own = (name) => ordered.filter((run) => run.variant === name);
  const top = [...there].sort((one, other) => accuracyOf(other, key) - accuracyOf(one, key))[0];
  return makeChart({
    title: `${title} (${key} epoch)`,
    summary: `A point a run; the best is ${about(top)} with ${values(top).join(" at ")}. Selecting a point opens the run.`,
    legend, zoom: "xy", height: 340,
    tip: ({ data }) => tipOf(about(data.run), [[legend.find((item) => item.name === data.run.variant), values(data.run).join(" · ")]]),
    click: ({ data }) => data && data.run && go(data.run.id),
    table: () => ({
      columns: [
        { title: "run", value: about, show: (run) => el("a", { href: `#${run.id}` }, about(run)) },
        { title: `${key} %`, number: true, value: (run) => +(100 * accuracyOf(run, key)).toFixed(4), show: (run, value) => value.toFixed(2) },
        { title: axis, number: true, value: (run) => run[cost], show: (run, value) => count(value) },
      ],
      rows: ordered,
    }),
    points: ordered.length,
    point: (at) => {
      const run = ordered[at];
      return { words: `${about(run)}: ${values(run).join(" at ")}`, action: { seriesIndex: names.indexOf(run.variant), dataIndex: own(run.variant).indexOf(run) } };
    },
    option: (style) => ({
      grid: plot(),
      xAxis: crossAxis(style, axis, logarithmic(there.map((run) => run[cost]))),
      yAxis: valueAxis(style, "test accuracy in %", { max: ceiling(group.rows, key) }),
      series: names.map((name) => ({
        type: "scatter", name, ...marker(style, places[name], 10), cursor: "pointer",
        data: own(name).map((run) => ({ value: [run[cost], 100 * accuracyOf(run, key)], run })),
      })),
    }),
  });
}

// Room above the highest point, but none above 100 %.
const ceiling = (rows, key) => Math.min(100, Math.ceil(Math.max(...rows.map((row) => row[key] + (row[`${key}_deviation`] || 0))) + 0.5));

const accuracyOf = (run, key) => (key === "last" ? run.sparse_last ?? run.dense_last : run.sparse_best ?? run.dense_best);

function problemsSection(data) {
  if (!data.problems.length) return null;
  return el("section", { class: "notice", "aria-labelledby": "problems-title" },
    el("h2", { id: "problems-title" }, data.problems.length === 1 ? "A run that could not be read" : `${data.problems.length} runs that could not be read`),
    el("ul", null, data.problems.map((item) => el("li", null, el("code", null, item.run), ": ", item.problem))));
}

function overview(data) {
  return [headlines(data), problemsSection(data), comparisonSection(data), runsSection(data)];
}

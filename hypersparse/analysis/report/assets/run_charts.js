// The charts of one run: over its epochs, layers and classes.

// One chart over the epochs. series: {key, name, color, dash, axis, factor, show}; those without a value are left out.
function epochChart(
  run,
  { title, summary, series, axes, marks = () => null, from = run.curves, height = 320, wide = false },
) {
  const epochs = run.phases.at(-1).last + 1;
  const lines = series
    .filter((line) => from[line.key])
    .map((line) => ({
      ...line,
      values: unpack(from[line.key], epochs).map((value) => (known(value) ? value * (line.factor || 1) : null)),
    }));
  if (!lines.length) return null;
  const phaseAt = (epoch) => run.phases.find((phase) => epoch >= phase.first && epoch <= phase.last);
  const heading = (epoch) => `epoch ${epoch} · ${phaseAt(epoch)?.name ?? ""}`;
  const linesOf = (place) => lines.filter((line) => (line.axis || 0) === place);
  const valuesOf = (place) => linesOf(place).flatMap((line) => line.values);
  const used = axes.map((_, place) => linesOf(place).length > 0);
  return makeChart({
    title,
    summary: summary(Object.fromEntries(lines.map((line) => [line.key, line.values]))),
    zoom: "x",
    height,
    wide,
    legend: lines,
    heading: (one) => heading(one.value[0]),
    table: () => ({
      columns: [
        numberColumn("epoch", (epoch) => epoch),
        textColumn("phase", (epoch) => phaseAt(epoch)?.name),
        ...lines.map((line) => numberColumn(line.name, (epoch) => line.values[epoch], line.show)),
      ],
      rows: [...Array(epochs).keys()],
    }),
    points: epochs,
    point: (at, hidden) => {
      const there = lines.filter((line) => known(line.values[at]) && !hidden.has(line.name));
      return {
        words: `${heading(at)}: ${there.map((line) => `${line.name} ${line.show(line.values[at])}`).join(", ")}`,
        action: { seriesIndex: Math.max(0, lines.indexOf(there[0])), dataIndex: at },
      };
    },
    option: (style, width) => ({
      grid: plot({ top: 50, right: used[1] ? 56 : 20 }),
      xAxis: crossAxis(style, "epoch", { min: 0, max: Math.max(1, epochs - 1), minInterval: 1 }),
      yAxis: axes.map((axis, place) =>
        valueAxis(style, axis.name, {
          show: used[place],
          nameGap: 26,
          ...axis.more,
          ...(axis.log && logarithmic(valuesOf(place))),
          ...(place && { splitLine: { show: false }, nameTextStyle: rightName(style) }),
        }),
      ),
      series: [
        ...lines.map((line) => curve(line, style, epochs, marks(line, style))),
        shading(run, style, width, epochs),
      ],
    }),
  });
}

const rightName = (style) => ({ color: style.muted, align: "right", padding: [0, -48, 0, 0] });

function curve(line, style, epochs, marked) {
  return {
    type: "line",
    name: line.name,
    color: colorOf(style, line.color),
    yAxisIndex: line.axis || 0,
    symbol: "circle",
    symbolSize: epochs > 40 ? 4 : 6,
    showSymbol: epochs <= 40,
    lineStyle: { width: line.width || 2, type: line.dash || "solid" },
    connectNulls: false,
    markPoint: marked,
    data: line.values.map((value, epoch) => [epoch, value]),
    emphasis: { disabled: true },
  };
}

function shading(run, style, width, epochs) {
  const letters = (phase) => (((phase.last - phase.first + 1) / epochs) * (width - 80)) / 6.5;
  return {
    type: "line",
    name: "phases",
    data: [[0, null]],
    silent: true,
    tooltip: { show: false },
    markArea: {
      silent: true,
      label: { color: style.muted, fontSize: 11, position: "top", distance: 3 },
      data: run.phases.map((phase, place) => [
        {
          name: letters(phase) > phase.name.length ? phase.name : "",
          xAxis: phase.first ? phase.first - 0.5 : 0,
          itemStyle: { color: style.shades[place % 2] },
        },
        { xAxis: phase.last + 0.5 },
      ]),
    },
  };
}

const lastKnown = (values) => (values || []).filter(known).at(-1);

function accuracyChart(run) {
  const sparse = known(run.sparse_last);
  const end = sparse
    ? ["sparse_last", "sparse_last_epoch", "sparse_best", "sparse_best_epoch"]
    : ["dense_last", "dense_last_epoch", "dense_best", "dense_best_epoch"];
  const [last, lastEpoch, best, bestEpoch] = end.map((name) => run[name]);
  const point = (epoch, value, hollow, style) => ({
    coord: [epoch, 100 * value],
    symbol: "circle",
    symbolSize: 10,
    label: { show: false },
    itemStyle: { color: hollow ? style.surface : colorOf(style, 1), borderColor: colorOf(style, 1), borderWidth: 2 },
  });
  return epochChart(run, {
    title: "Accuracy",
    summary: (values) =>
      `${plural(run.epochs, "epoch")}; test accuracy ends at ${shownPercent(lastKnown(values.test_accuracy) ?? 0)}` +
      (known(best) ? `, best ${percent(best)} in epoch ${bestEpoch} (hollow mark). ` : ". ") +
      (values.pruned_score ? "“Dense” and “pruned” are accuracies on training images, which the method compares." : ""),
    axes: [{ name: "accuracy in %", more: { max: 100 } }],
    height: 400,
    wide: true,
    series: [
      { key: "test_accuracy", name: "test", color: 1, factor: 100, show: shownPercent },
      { key: "validation_accuracy", name: "validation", color: 3, factor: 100, dash: DASHES[1], show: shownPercent },
      { key: "train_accuracy", name: "train", color: 0, factor: 100, width: 1.5, show: shownPercent },
      { key: "dense_score", name: "dense", color: 0, factor: 100, dash: DASHES[2], width: 3, show: shownPercent },
      { key: "pruned_score", name: "pruned", color: 2, factor: 100, show: shownPercent },
    ],
    marks: (line, style) =>
      line.key === "test_accuracy" && known(best)
        ? { silent: true, data: [point(bestEpoch, best, true, style), point(lastEpoch, last, false, style)] }
        : undefined,
  });
}

function lossChart(run) {
  return epochChart(run, {
    title: "Loss",
    summary: (values) =>
      `Training loss ends at ${fine(lastKnown(values.loss) ?? 0)}` +
      (known(lastKnown(values.test_loss)) ? `, test loss at ${fine(lastKnown(values.test_loss))}.` : "."),
    axes: [
      { name: "loss", more: { scale: false } },
      { name: "learning rate", log: true },
    ],
    series: [
      { key: "loss", name: "train", color: 0, show: fine },
      { key: "test_loss", name: "test", color: 1, show: fine },
      { key: "lr", name: "learning rate", color: 7, axis: 1, dash: DASHES[2], width: 1.5, show: fine },
    ],
  });
}

function penaltyChart(run) {
  if (!run.curves.strength && !run.curves.w_kappa) return null;
  return epochChart(run, {
    title: "Penalty",
    summary: (values) =>
      `The penalty strength grows to ${fine(lastKnown(values.strength) ?? 0)}. The smallest kept weight ends at ${fine(lastKnown(values.w_kappa) ?? 0)}. Both axes are logarithmic.`,
    axes: [
      { name: "strength", log: true },
      { name: "|w_κ|", log: true },
    ],
    series: [
      { key: "strength", name: "penalty strength", color: 4, show: fine },
      { key: "w_kappa", name: "smallest kept |w_κ|", color: 2, axis: 1, dash: DASHES[1], show: fine },
    ],
  });
}

function keptChart(run) {
  const counts = unpack(run.curves.kept, 0);
  const changes = counts.filter((kept, epoch) => epoch && kept !== counts[epoch - 1]).length;
  if (changes < 2) return null; // all and then the final count: the headline says as much
  return epochChart(run, {
    title: "Weights kept",
    summary: (values) => `The mask keeps ${count(lastKnown(values.kept))} weights at the end.`,
    axes: [{ name: "weights kept", log: true }],
    series: [{ key: "kept", name: "kept", color: 2, show: count }],
  });
}

function maskChart(run) {
  if (!run.record.intersection && !run.record.crossed) return null;
  return epochChart(run, {
    title: "Mask changes",
    summary: (values) =>
      (values.intersection
        ? `In the last recorded epoch the largest weights share ${shownPercent(lastKnown(values.intersection))} with the final mask. `
        : "") + "New: weights that entered the mask since the previous epoch.",
    from: run.record,
    axes: [
      { name: "share in %", more: { min: 0, max: 100 } },
      { name: "weights", more: { scale: false } },
    ],
    series: [
      { key: "intersection", name: "shared with the final mask", color: 2, factor: 100, show: shownPercent },
      { key: "crossed", name: "new", color: 3, axis: 1, dash: DASHES[1], show: count },
    ],
  });
}

function layersChart(data, run) {
  const { names, totals } = data.networks[run.layers.network];
  const kept = run.layers.kept;
  if (!kept.length) return null;
  const sized = totals.every(known);
  const legend = [
    { name: "kept", color: 2, box: true, show: count },
    ...(sized ? [{ name: "all", color: 7, box: true, hollow: true, show: count }] : []),
  ];
  const words = (at) =>
    `${count(kept[at])}${sized ? ` of ${count(totals[at])} (${((100 * kept[at]) / totals[at]).toPrecision(3)} %)` : ""}`;
  const longest = Math.max(...names.map((name) => name.length));
  const shares = kept.map((value, at) => value / (totals[at] || 1));
  const perCent = (at) => +(100 * shares[at]).toPrecision(5);
  const shareColumn = numberColumn("kept %", perCent, (value) => value.toPrecision(3));
  const extreme = (pick) => names[shares.indexOf(pick(...shares))];
  return makeChart({
    title: "Weights per layer",
    summary: sized
      ? `From input to output, on a logarithmic axis. The densest layer is ${extreme(Math.max)}, the sparsest ${extreme(Math.min)}.`
      : "Weights that pruning would keep after the last regularized epoch, from input to output.",
    legend,
    height: 70 + 22 * names.length,
    pointer: "shadow",
    wide: names.length > 14,
    heading: (one) => `${names[one.dataIndex]}: ${words(one.dataIndex)}`,
    points: names.length,
    point: (at) => ({ words: `${names[at]}: ${words(at)}`, action: { seriesIndex: 0, dataIndex: at } }),
    table: () => ({
      columns: [
        textColumn("layer", (at) => names[at]),
        numberColumn("place", (at) => at + 1),
        numberColumn("kept", (at) => kept[at], count),
        ...(sized ? [numberColumn("all", (at) => totals[at], count), shareColumn] : []),
      ],
      rows: names.map((_, at) => at),
    }),
    option: (style, width) => {
      const narrow = width < NARROW;
      const outline = { color: "transparent", borderColor: style.axis, borderWidth: 1 };
      const text = ({ dataIndex }) => words(dataIndex);
      const label = { position: "right", color: style.muted, fontSize: 11, formatter: text };
      const bars = (name, values, more) => ({
        type: "bar",
        name,
        data: values.map((value) => value || null),
        barWidth: "72%",
        barGap: "-100%",
        emphasis: { disabled: true },
        ...more,
      });
      return {
        grid: plot({ left: Math.min(narrow ? 116 : 220, 16 + 6.6 * longest), right: narrow ? 16 : 150, top: 10 }),
        xAxis: crossAxis(style, "weights", {
          type: "log",
          min: 0.8,
          axisLabel: { formatter: (value) => (value < 1 ? "" : short(value)) },
          splitLine: { show: true, lineStyle: { color: style.grid } },
        }),
        yAxis: {
          type: "category",
          inverse: true,
          data: names,
          axisTick: { show: false },
          axisLine: { lineStyle: { color: style.axis } },
          axisLabel: { color: style.muted, interval: 0, fontSize: 11, width: narrow ? 104 : 200, overflow: "truncate" },
        },
        series: [
          ...(sized ? [bars("all", totals, { itemStyle: outline, z: 1, label: { show: !narrow, ...label } })] : []),
          bars("kept", kept, { itemStyle: { color: colorOf(style, 2) }, z: 2 }),
        ],
      };
    },
  });
}

const MANY_CLASSES = 20; // more are sorted by accuracy, with rotated names

function classesChart(run) {
  const { class_correct: right, class_total: all } = run.record;
  if (!right) return null;
  const share = (at) => (all[at] ? (100 * right[at]) / all[at] : null);
  const many = right.length > MANY_CLASSES;
  const order = [...right.keys()].sort((one, other) => (many ? share(other) - share(one) : 0));
  const [correct, total, values] = [order.map((at) => right[at]), order.map((at) => all[at]), order.map(share)];
  const names = order.map((at) => (run.record.classes ?? [])[at]?.replaceAll("_", " ") ?? String(at));
  const called = names.map((name) => (/^\d+$/.test(name) ? `class ${name}` : name));
  const extreme = (pick) => {
    const value = pick(...values.filter(known));
    return `${shownPercent(value)} (${called[values.indexOf(value)]})`;
  };
  return makeChart({
    title: "Accuracy by class",
    summary: `Test accuracy of each class in the last epoch: from ${extreme(Math.min)} to ${extreme(Math.max)}.`,
    legend: [{ name: "correct", color: 0, box: true, show: shownPercent }],
    zoom: many ? "x" : null,
    wide: many,
    height: many ? 380 : undefined,
    pointer: "shadow",
    heading: (one) => `${called[one.dataIndex]}: ${correct[one.dataIndex]} of ${total[one.dataIndex]}`,
    points: names.length,
    point: (at) => ({
      words: `${called[at]}: ${correct[at]} of ${total[at]}, ${shownPercent(values[at])}`,
      action: { seriesIndex: 0, dataIndex: at },
    }),
    table: () => ({
      columns: [
        textColumn("class", (at) => names[at]),
        numberColumn("correct", (at) => correct[at]),
        numberColumn("images", (at) => total[at]),
        numberColumn("%", (at) => +values[at].toFixed(4), hundredths),
      ],
      rows: names.map((_, at) => at),
    }),
    option: (style, width) => ({
      grid: plot({ top: 44, ...(many ? { bottom: 110 } : {}) }),
      xAxis: crossAxis(style, "class", {
        type: "category",
        data: names,
        ...(many ? { nameGap: 92 } : {}),
        axisLabel: { formatter: String, ...(many ? { rotate: 90, fontSize: 10, hideOverlap: true } : {}) },
      }),
      yAxis: valueAxis(style, "test accuracy in %", { min: 0, max: 100, nameGap: 24 }),
      series: [
        {
          type: "bar",
          name: "correct",
          data: values,
          color: colorOf(style, 0),
          barMaxWidth: 36,
          itemStyle: { borderRadius: [3, 3, 0, 0] },
          emphasis: { disabled: true },
          label: {
            show: names.length * 36 < width,
            position: "top",
            color: style.muted,
            fontSize: 11,
            formatter: ({ value }) => value.toFixed(1),
          },
        },
      ],
    }),
  });
}

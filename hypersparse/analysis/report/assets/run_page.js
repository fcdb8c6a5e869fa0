// The page of one run: results, phases, curves, weights per layer, and provenance.

function runPage(data, run, alone) {
  return [
    alone ? null : neighbours(data, run),
    el(
      "header",
      { class: "run-head" },
      el(
        "h2",
        { id: "run-title", class: alone ? "unseen" : null },
        alone ? "The run" : `${run.label}, seed ${run.seed}`,
      ),
      el("p", null, stateBadge(run), " ", el("code", null, run.path)),
    ),
    run.notes.map((note) => el("p", { class: "notice" }, note)),
    runHeadlines(run),
    el("p", { class: "small" }, bestNote([run])),
    run.phases.length ? phasesSection(run) : el("p", { class: "notice" }, "No epoch has finished yet."),
    chartsSection(data, run),
    provenanceSection(run),
  ];
}

function neighbours(data, run) {
  const at = data.runs.indexOf(run);
  const link = (other, words, name) =>
    other
      ? el(
          "a",
          { href: `#${other.id}`, class: "quiet", rel: words },
          name === "left" ? icon(name) : "",
          words,
          name === "right" ? icon(name) : "",
        )
      : null;
  return el(
    "nav",
    { class: "neighbours", "aria-label": "Runs" },
    el("a", { href: "#overview", class: "quiet" }, icon("left"), "All runs"),
    el("span", { class: "small" }, `${at + 1} of ${data.runs.length}`),
    link(data.runs[at - 1], "previous", "left"),
    link(data.runs[at + 1], "next", "right"),
  );
}

function runHeadlines(run) {
  const accuracy = (name, last, best, epoch) =>
    known(last) && card(name, percent(last), `in the last epoch; best ${percent(best)} in epoch ${epoch}`);
  const share = known(run.kept) && run.total ? run.kept / run.total : null;
  const smaller =
    run.final_bytes && run.dense_bytes
      ? `${(run.dense_bytes / run.final_bytes).toFixed(1)} times smaller than ${bytes(run.dense_bytes)} dense`
      : null;
  return el(
    "dl",
    { class: "cards" },
    [
      accuracy("Sparse network", run.sparse_last, run.sparse_best, run.sparse_best_epoch),
      accuracy("Dense network", run.dense_last, run.dense_best, run.dense_best_epoch),
      known(run.kept) &&
        card(
          "Weights kept",
          count(run.kept),
          share === null ? null : `of ${count(run.total)}: ${sparsity(+(1 - share).toFixed(4))} sparsity`,
          known(run.effective_kept) ? `${count(run.effective_kept)} on a path from input to output` : null,
        ),
      known(run.final_bytes) && card("Size", bytes(run.final_bytes), smaller),
      known(run.training_flops) &&
        card(
          "Training cost",
          flops(run.training_flops),
          `${flops(run.training_flops_sparse)} without zeros`,
          `${flops(run.inference_flops_sparse)} per image after training`,
        ),
      card(
        "Time",
        duration(run.seconds) || "–",
        plural(run.epochs, "epoch"),
        run.machine.device ? `on ${run.machine.device}, ${run.machine.precision}` : null,
      ),
    ].filter(Boolean),
  );
}

function phasesSection(run) {
  const epochs = run.phases.at(-1).last + 1;
  const test = unpack(run.curves.test_accuracy, epochs);
  const inside = (phase) => test.slice(phase.first, phase.last + 1).filter(known);
  const strip = el(
    "div",
    { class: "strip", "aria-hidden": "true" },
    run.phases.map((phase, place) =>
      el(
        "div",
        { class: `stretch shade-${place % 3}`, style: `flex-grow:${phase.last - phase.first + 1}`, title: phase.name },
        el("span", null, phase.name),
      ),
    ),
  );
  const table = makeTable({
    caption: "Phases",
    hideCaption: true,
    rows: run.phases,
    columns: [
      { title: "phase", value: (phase) => phase.name },
      { title: "epochs", number: true, value: (phase) => phase.last - phase.first + 1 },
      { title: "from", number: true, value: (phase) => phase.first },
      { title: "to", number: true, value: (phase) => phase.last },
      {
        title: "time",
        number: true,
        value: (phase) => phase.seconds,
        show: (phase, value) => duration(value) + (phase.shared ? ", shared" : ""),
      },
      {
        title: "test % first",
        number: true,
        value: (phase) => inside(phase)[0],
        show: (phase, value) => (known(value) ? (100 * value).toFixed(2) : ""),
      },
      {
        title: "test % last",
        number: true,
        value: (phase) => inside(phase).at(-1),
        show: (phase, value) => (known(value) ? (100 * value).toFixed(2) : ""),
      },
      {
        title: "test % best",
        number: true,
        value: (phase) => (inside(phase).length ? Math.max(...inside(phase)) : null),
        show: (phase, value) => (known(value) ? (100 * value).toFixed(2) : ""),
      },
    ],
  });
  return el(
    "section",
    { "aria-labelledby": "phases-title" },
    el("h3", { id: "phases-title" }, "Phases"),
    strip,
    table.node,
  );
}

function chartsSection(data, run) {
  if (!run.phases.length) return null;
  return el(
    "section",
    { "aria-labelledby": "curves-title" },
    el("h3", { id: "curves-title" }, "Curves"),
    el(
      "div",
      { class: "figures led" },
      [accuracyChart, lossChart, penaltyChart, keptChart, maskChart].map((make) => make(run)).filter(Boolean),
    ),
    el("h3", null, "Weights and classes"),
    el("div", { class: "figures" }, [layersChart(data, run), classesChart(run)].filter(Boolean)),
  );
}

function provenanceSection(run) {
  const machine = { ...run.machine };
  const rows = [
    ["run", run.label],
    ["seed", run.seed],
    ["folder", run.path],
    ["state", run.state],
    ["data", run.data],
    ["model", run.model],
    ["method", run.variant],
    [
      "training time",
      `${duration(run.seconds)} in ${plural(run.epochs, "epoch")}${run.shared_seconds ? `, of which ${duration(run.shared_seconds)} in phases shared with an earlier run` : ""}`,
    ],
    ...Object.entries(machine),
  ];
  return el(
    "section",
    { "aria-labelledby": "provenance-title" },
    el("h3", { id: "provenance-title" }, "Provenance"),
    el(
      "div",
      { class: "made" },
      el(
        "dl",
        { class: "facts card" },
        rows.map(([name, value]) => [el("dt", null, name), el("dd", null, exact(value))]),
      ),
      el(
        "div",
        { class: "card" },
        el("h4", null, "recipe.toml"),
        el("pre", { tabindex: 0, role: "region", "aria-label": "The recipe" }, run.recipe),
      ),
    ),
    Object.keys(machine).length
      ? null
      : el("p", { class: "small" }, "Versions and machine are stored when the run finishes."),
  );
}

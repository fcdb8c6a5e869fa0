// The page of one run: results, phases, curves, weights per layer, and provenance.

function runPage(data, run, alone) {
  const notice = (words) => el("p", { class: "notice" }, words);
  const named = alone ? "The run" : `${run.label}, seed ${run.seed}`;
  const title = el("h2", { id: "run-title", class: alone ? "unseen" : null }, named);
  const state = el("p", null, stateBadge(run), " ", el("code", null, run.path));
  return [
    alone ? null : neighbours(data, run),
    el("header", { class: "run-head" }, title, state),
    run.notes.map(notice),
    runHeadlines(run),
    small(bestNote([run])),
    run.phases.length ? phasesSection(run) : notice("No epoch has finished yet."),
    chartsSection(data, run),
    provenanceSection(run),
  ];
}

function neighbours(data, run) {
  const at = data.runs.indexOf(run);
  const link = (other, rel, ...words) => other && el("a", { href: `#${other.id}`, class: "quiet", rel }, ...words);
  return el(
    "nav",
    { class: "neighbours", "aria-label": "Runs" },
    el("a", { href: "#overview", class: "quiet" }, icon("left"), "All runs"),
    el("span", { class: "small" }, `${at + 1} of ${data.runs.length}`),
    link(data.runs[at - 1], "previous", icon("left"), "previous"),
    link(data.runs[at + 1], "next", "next", icon("right")),
  );
}

function runHeadlines(run) {
  const accuracy = (name, last, best, epoch) =>
    known(last) && card(name, percent(last), `in the last epoch; best ${percent(best)} in epoch ${epoch}`);
  const share = run.total && `of ${count(run.total)}: ${sparsity(+(1 - run.kept / run.total).toFixed(4))} sparsity`;
  const onPath = known(run.effective_kept) && `${count(run.effective_kept)} on a path from input to output`;
  const factor = (run.dense_bytes / run.final_bytes).toFixed(1);
  const smaller = run.dense_bytes && `${factor} times smaller than ${bytes(run.dense_bytes)} dense`;
  const costs = [
    `${flops(run.training_flops_sparse)} without zeros`,
    `${flops(run.inference_flops_sparse)} per image after training`,
  ];
  const machine = run.machine.device && `on ${run.machine.device}, ${run.machine.precision}`;
  const cards = [
    accuracy("Sparse network", run.sparse_last, run.sparse_best, run.sparse_best_epoch),
    accuracy("Dense network", run.dense_last, run.dense_best, run.dense_best_epoch),
    known(run.kept) && card("Weights kept", count(run.kept), share, onPath),
    known(run.final_bytes) && card("Size", bytes(run.final_bytes), smaller),
    known(run.training_flops) && card("Training cost", flops(run.training_flops), ...costs),
    card("Time", duration(run.seconds) || "–", plural(run.epochs, "epoch"), machine),
  ];
  return el("dl", { class: "cards" }, cards.filter(Boolean));
}

function phasesSection(run) {
  const epochs = run.phases.at(-1).last + 1;
  const test = unpack(run.curves.test_accuracy, epochs);
  const inside = (phase) => test.slice(phase.first, phase.last + 1).filter(known);
  const time = (seconds, phase) => duration(seconds) + (phase.shared ? ", shared" : "");
  const length = (phase) => phase.last - phase.first + 1;
  const stretches = run.phases.map((phase, place) => {
    const attributes = { class: `stretch shade-${place % 3}`, style: `flex-grow:${length(phase)}`, title: phase.name };
    return el("div", attributes, el("span", null, phase.name));
  });
  const strip = el("div", { class: "strip", "aria-hidden": "true" }, stretches);
  const table = makeTable({
    caption: "Phases",
    hideCaption: true,
    rows: run.phases,
    columns: [
      textColumn("phase", (phase) => phase.name),
      numberColumn("epochs", length),
      numberColumn("from", (phase) => phase.first),
      numberColumn("to", (phase) => phase.last),
      numberColumn("time", (phase) => phase.seconds, time),
      numberColumn("test % first", (phase) => inside(phase)[0], points),
      numberColumn("test % last", (phase) => inside(phase).at(-1), points),
      numberColumn("test % best", (phase) => inside(phase).sort((one, other) => other - one)[0], points),
    ],
  });
  return section("phases", "h3", "Phases", strip, table.node);
}

function chartsSection(data, run) {
  if (!run.phases.length) return null;
  const curves = [accuracyChart, lossChart, penaltyChart, keptChart, maskChart].map((make) => make(run));
  const others = el("div", { class: "figures" }, layersChart(data, run), classesChart(run));
  const parts = [el("div", { class: "figures led" }, curves), el("h3", null, "Weights and classes"), others];
  return section("curves", "h3", "Curves", parts);
}

function provenanceSection(run) {
  const shared = run.shared_seconds
    ? `, of which ${duration(run.shared_seconds)} in phases shared with an earlier run`
    : "";
  const rows = [
    ["run", run.label],
    ["seed", run.seed],
    ["folder", run.path],
    ["state", run.state],
    ["data", run.data],
    ["model", run.model],
    ["method", run.variant],
    ["training time", `${duration(run.seconds)} in ${plural(run.epochs, "epoch")}${shared}`],
    ...Object.entries(run.machine),
  ];
  const terms = rows.map(([name, value]) => [el("dt", null, name), el("dd", null, exact(value))]);
  const text = el("pre", { tabindex: 0, role: "region", "aria-label": "The recipe" }, run.recipe);
  const recipe = el("div", { class: "card" }, el("h4", null, "recipe.toml"), text);
  const note = Object.keys(run.machine).length ? null : small("Versions and machine are stored when the run finishes.");
  const made = el("div", { class: "made" }, el("dl", { class: "facts card" }, terms), recipe);
  return section("provenance", "h3", "Provenance", made, note);
}

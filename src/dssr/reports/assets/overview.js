"use strict";
// The parts of the page about whole cells: answers, filters, grid and charts.

const D = JSON.parse($("summary").textContent);
D.memories.forEach((one, at) => looks.set(one.name, at));
const chosen = {
  memory: new Set(D.memories.map((one) => one.name)),
  budget: new Set(D.budgets),
  filler: new Set(D.fillers),
};
const listeners = [];
const changed = () => listeners.forEach((one) => one());
const cellShown = (c) => chosen.memory.has(c.memory) && (c.budget === null || chosen.budget.has(c.budget)) && chosen.filler.has(c.filler);
const budgetText = (b) => (b === null ? "no limit" : `B = ${b}`);
const cellText = (c) => `${c.memory}, ${budgetText(c.budget)}, F′ = ${c.filler}${D.protocols.length > 1 ? `, ${c.protocol}` : ""}`;

function answers() {
  $("answers").replaceChildren(...D.memories.map((one) => h("li", {},
    named(one.name), h("span", { class: `badge ${one.verdict}` }, one.badge),
    h("span", { class: "why" }, one.sentence.map(([text, strong]) => (strong ? h("b", {}, text) : text))))));
}

function filters() {
  const group = (name, title, values, face) => {
    if (values.length < 2) return null;
    return h("fieldset", {}, h("legend", {}, title), values.map((value) => h("button", {
      type: "button", class: name === "memory" ? "chip" : "chip plain", "aria-pressed": "true", "data-filter": name, "data-value": value,
      onclick: (event) => {
        const set = chosen[name], button = event.currentTarget;
        if (set.has(value)) { if (set.size === 1) return; set.delete(value); } else set.add(value);
        button.setAttribute("aria-pressed", String(set.has(value)));
        changed();
      },
    }, face(value))));
  };
  fill($("filters"), {}, [
    group("memory", "Memory", D.memories.map((one) => one.name), (m) => [dot(m), h("span", { class: "sense" }, breakable(m))]),
    group("budget", "Budget, tokens", D.budgets, (b) => String(b)),
    group("filler", "Filler F′, steps", D.fillers, (f) => String(f)),
  ]);
}

// ---- grid

const QUANTITIES = { success: D.words.won, delta: "gap δ to the full history", beta: "budget loss β", kappa: "write-time regret κ", coverage: `${D.words.facts} in the state` };
const SIGNS = { success: D.words.scored, delta: "δ", beta: "β", kappa: "κ", coverage: "Coverage" };
const unitOf = (name) => (SHARES.includes(name) ? "%" : "nats");
const measured = Object.keys(QUANTITIES).filter((name) => D.cells.some((c) => c[name]));
let quantity = measured[0];

function grid() {
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Quantity shown in the grid" },
    measured.map((name) => h("button", {
      type: "button", "aria-pressed": String(name === quantity), "aria-label": `${SIGNS[name]}: ${QUANTITIES[name]}`, "data-quantity": name, tip: QUANTITIES[name],
      onclick: (event) => {
        quantity = name;
        for (const one of tabs.children) one.setAttribute("aria-pressed", String(one === event.currentTarget));
        table();
      },
    }, SIGNS[name])));
  const about = h("p", { class: "note", id: "grid-about" }), place = h("div", {});
  const table = () => {
    const columns = D.fillers.length > 1 ? `; columns are filler steps F′ between the ${D.words.task} and the task` : "";
    about.textContent = `${QUANTITIES[quantity]}, ${unitOf(quantity)}, with ${D.intervals} intervals over ${D.words.units}${columns}`;
    place.replaceChildren(gridTable());
  };
  listeners.push(table);
  table();
  $("grid-body").replaceChildren(tabs, about, hinted(place, "Grid"));
}
function gridTable() {
  const cells = D.cells.filter(cellShown), fillers = D.fillers.filter((f) => chosen.filler.has(f));
  const rows = new Map();
  for (const c of cells) {
    const key = JSON.stringify([c.memory, c.budget, c.protocol]);
    if (!rows.has(key)) rows.set(key, { head: c, at: new Map() });
    rows.get(key).at.set(c.filler, c);
  }
  const top = Math.max(0.01, ...cells.map((c) => (c[quantity] ? Math.abs(c[quantity].value) : 0)));
  let before = null;
  const body = [...rows.values()].map(({ head, at }) => {
    const first = head.memory !== before;
    before = head.memory;
    return h("tr", { class: first ? "first" : null }, h("th", { scope: "row" }, first ? named(head.memory) : h("span", { class: "unseen" }, head.memory)),
      D.budgets.length ? h("td", {}, head.budget === null ? "–" : head.budget) : null, D.protocols.length > 1 ? h("td", {}, head.protocol) : null,
      fillers.map((f) => gridCell(at.get(f), top)));
  });
  return h("table", { id: "grid-table", "aria-describedby": "grid-about" },
    h("thead", {}, h("tr", {}, ["Memory", ...(D.budgets.length ? ["Budget, tokens"] : []), ...(D.protocols.length > 1 ? ["Protocol"] : [])].map((t) => h("th", { scope: "col" }, t)),
      fillers.map((f) => h("th", { scope: "col" }, D.fillers.length > 1 ? `F′ = ${f} steps` : QUANTITIES[quantity])))),
    h("tbody", {}, body));
}
function gridCell(c, top) {
  if (!c) return h("td", { class: "value" }, "–");
  const e = c[quantity], paper = c.published[quantity];
  const beside = paper === undefined ? null : h("small", { class: "paper" }, `published ${minus(paper)}`);
  if (!e) return h("td", { class: "value", tip: D.missing.decomposition || "not measured in this cell" }, "–", beside);
  const good = SHARES.includes(quantity), strength = Math.round(34 * Math.min(1, Math.abs(e.value) / (good ? 1 : top)));
  const color = good ? "good" : quantity === "beta" ? "beta" : e.value < 0 ? "good" : "kappa";
  const [value, ...range] = e.text.split(" ");
  return h("td", { class: "value num", style: `background:color-mix(in srgb, var(--${color}) ${strength}%, transparent)`, tip: cellTip(c) },
    value, range.length ? h("small", {}, ` ${range.join(" ")}`) : null, beside);
}
function cellTip(c) {
  const lines = [cellText(c)];
  if (c.success) lines.push(`${D.words.won} ${told(c.success, "%")}, ${plural(c.games, D.words.unit)}${c.seeds > 1 ? `, ${c.seeds} seeds` : ""}`);
  for (const name of ["delta", "beta", "kappa"]) if (c[name]) lines.push(`${SIGNS[name]} ${told(c[name], "nats")}`);
  if (c.points) lines.push(plural(c.points, "audited decision"));
  if (c.errors) lines.push(`${plural(c.errors, "episode")} failed and counted apart`);
  return lines.join("\n");
}

// ---- charts, one panel per chosen budget; under each its numbers as a table

function panels(host, make) {
  const paint = () => {
    const budgets = D.budgets.filter((b) => chosen.budget.has(b));
    const made = (budgets.length ? budgets : [null]).map((b) => [b, make(b)]).filter(([, node]) => node);
    $(host).replaceChildren(...(made.length
      ? made.map(([b, node]) => h("div", {}, made.length > 1 || b !== null ? h("h3", {}, budgetText(b)) : null, node))
      : [h("p", { class: "empty" }, "Nothing to draw for this choice.")]));
  };
  listeners.push(paint);
  paint();
}
const inPanel = (row, budget) => row.budget === budget || row.budget === null;
const ends = (e) => [e.value, e.low, e.high];
const estimatePoint = (x, e, text) => ({ x, y: e.value, low: e.low, high: e.high, tip: `${text}\n${told(e, "nats")}\n${plural(e.n, D.words.unit)}` });

function decomposition() {
  const cells = (budget) => D.memories.flatMap(({ name }) => D.cells.filter((c) => c.memory === name && inPanel(c, budget) && cellShown(c) && c.delta && c.beta && c.kappa));
  const bars = (budget) => cells(budget).map((c, i, all) => ({ head: i && all[i - 1].memory === c.memory ? null : c.memory, memory: c.memory,
    text: D.fillers.length > 1 ? `F′ ${c.filler}` : "", beta: c.beta.value, kappa: c.kappa.value, delta: c.delta, tip: cellTip(c) }));
  panels("decomposition-body", (budget) => {
    const rows = bars(budget), limits = extent([...chosen.budget].flatMap(bars).concat(rows).flatMap(reach), true);
    return rows.length ? h("div", {}, lossBars(rows, `Gap δ as the sum of budget loss β and write-time regret κ, in nats, ${budgetText(budget)}`, limits),
      dataTable(["memory", "F′", "δ", "β", "κ"], cells(budget).map((c) => [named(c.memory), c.filler, told(c.delta), told(c.beta), told(c.kappa)]))) : null;
  });
}

function byFiller() {
  panels("filler-body", (budget) => {
    const cells = D.cells.filter((c) => inPanel(c, budget) && cellShown(c) && c.kappa && c.protocol === D.protocols[0]);
    const series = D.memories.map(({ name }) => ({ memory: name, points: cells.filter((c) => c.memory === name).map((c) => estimatePoint(c.filler, c.kappa, cellText(c))) })).filter((one) => one.points.length);
    const fillers = D.fillers.filter((f) => chosen.filler.has(f));
    const limits = extent(D.cells.filter((c) => cellShown(c) && c.kappa).flatMap((c) => ends(c.kappa)), true);
    return series.length ? h("div", {}, lineChart({ series, xs: fillers.map((f) => ({ x: f, text: f })), limits, yName: "κ, nats per decision", xName: "filler F′, steps", label: `Write-time regret κ in nats against filler steps, ${budgetText(budget)}` }),
      dataTable(["memory", ...fillers.map((f) => `F′ = ${f}`)], series.map((one) => [named(one.memory), ...fillers.map((f) => told((cells.find((c) => c.memory === one.memory && c.filler === f) || {}).kappa))]))) : null;
  });
}

function binned(host, table, xName, unit) {
  panels(host, (budget) => {
    const rows = table.rows.filter((r) => inPanel(r, budget) && chosen.memory.has(r.memory));
    const series = rows.map((r) => ({ memory: r.memory, points: r.values.map((e, i) => e && estimatePoint(i, e, `${r.memory}, ${xName} ${table.bins[i]} ${unit}`)).filter(Boolean) })).filter((one) => one.points.length);
    const limits = extent(table.rows.filter((r) => chosen.memory.has(r.memory)).flatMap((r) => r.values.flatMap((e) => (e ? ends(e) : []))), true);
    return series.length ? h("div", {}, lineChart({ series, xs: table.bins.map((text, x) => ({ x, text })), gaps: true, limits, yName: "κ, nats per decision", xName: `${xName}, ${unit}`, label: `Write-time regret κ in nats by ${xName}, ${budgetText(budget)}` }),
      dataTable(["memory", ...table.bins], rows.map((r) => [named(r.memory), ...r.values.map((e) => told(e))]))) : null;
  });
}

function association() {
  const paint = () => {
    const cells = D.cells.filter((c) => cellShown(c) && c.delta && c.success);
    $("association-body").replaceChildren(...(cells.length ? [
      scatter(cells.map((c) => ({ memory: c.memory, x: c.delta.value, y: c.success.value, tip: cellTip(c) })), `${D.words.won} in % against the gap δ in nats, one mark per cell`, `${D.words.won}, %`),
      dataTable(["memory", "B", "F′", "δ, nats", `${D.words.won}, %`], cells.map((c) => [named(c.memory), c.budget ?? "–", c.filler, told(c.delta), told(c.success)])),
    ] : [h("p", { class: "empty" }, "Nothing to draw for this choice.")]));
  };
  listeners.push(paint);
  paint();
}

function missing(host, text) {
  const parts = text.split("`");
  $(host).replaceChildren(h("p", { class: "empty" }, parts.map((part, i) => (i % 2 ? h("code", {}, part) : part))));
}

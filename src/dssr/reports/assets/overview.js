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
    group("memory", "Memory", D.memories.map((one) => one.name), (m) => [dot(m), m]),
    group("budget", "Budget", D.budgets, (b) => String(b)),
    group("filler", "F′", D.fillers, (f) => String(f)),
  ]);
}

// ---- grid

let quantity = "success";
const QUANTITIES = { success: "games won", delta: "sufficiency gap δ", beta: "budget loss β", kappa: "write-time regret κ", coverage: `${D.words.task} kept` };

function grid() {
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Quantity shown in the grid" },
    Object.entries({ success: "Success", delta: "δ", beta: "β", kappa: "κ", coverage: "Coverage" }).map(([name, text]) => h("button", {
      role: "tab", type: "button", "aria-selected": String(name === quantity), "data-quantity": name, tip: QUANTITIES[name],
      onclick: (event) => {
        quantity = name;
        for (const one of tabs.children) one.setAttribute("aria-selected", String(one === event.currentTarget));
        table();
      },
    }, text)));
  const about = h("p", { class: "note", id: "grid-about" }), place = h("div", { class: "scroll" });
  const table = () => {
    const nats = quantity === "success" || quantity === "coverage" ? "" : ", in nats";
    about.textContent = `${QUANTITIES[quantity]} with ${D.intervals} intervals over games${nats}; columns are filler steps F′ between the ${D.words.task} and the task`;
    place.replaceChildren(gridTable());
  };
  listeners.push(table);
  table();
  $("grid-body").replaceChildren(tabs, about, place);
}
function gridTable() {
  const cells = D.cells.filter(cellShown);
  const fillers = D.fillers.filter((f) => chosen.filler.has(f)), write = show(quantity);
  const rows = new Map();
  for (const c of cells) {
    const key = JSON.stringify([c.memory, c.budget, c.protocol]);
    if (!rows.has(key)) rows.set(key, { head: c, at: new Map() });
    rows.get(key).at.set(c.filler, c);
  }
  const top = Math.max(0.01, ...cells.map((c) => (c[quantity] ? Math.abs(c[quantity][0]) : 0)));
  let before = null;
  const body = [...rows.values()].map(({ head, at }) => {
    const first = head.memory !== before;
    before = head.memory;
    return h("tr", { class: first ? "first" : null }, h("th", { scope: "row" }, first ? named(head.memory) : h("span", { class: "skip" }, head.memory)),
      h("td", {}, head.budget === null ? "–" : head.budget), D.protocols.length > 1 ? h("td", {}, head.protocol) : null,
      fillers.map((f) => gridCell(at.get(f), write, top)));
  });
  return h("table", { id: "grid-table", "aria-describedby": "grid-about" },
    h("thead", {}, h("tr", {}, ["Memory", "Budget", ...(D.protocols.length > 1 ? ["Protocol"] : [])].map((t) => h("th", { scope: "col" }, t)),
      fillers.map((f) => h("th", { scope: "col" }, `F′ = ${f}`)))),
    h("tbody", {}, body));
}
function gridCell(c, write, top) {
  if (!c) return h("td", { class: "value" }, "–");
  const e = c[quantity];
  const paper = D.paper && D.paper[JSON.stringify([c.memory, c.budget, c.filler])];
  const beside = paper && paper[quantity] !== undefined ? h("small", { class: "paper" }, `paper ${write(paper[quantity])}`) : null;
  if (!e) return h("td", { class: "value", tip: D.missing.audits || "not measured in this cell" }, "–", beside);
  const good = quantity === "success" || quantity === "coverage";
  const strength = Math.round(34 * Math.min(1, Math.abs(e[0]) / (good ? 1 : top)));
  const color = good ? "good" : quantity === "beta" ? "beta" : e[0] < 0 ? "good" : "kappa";
  return h("td", { class: "value num", style: `background:color-mix(in srgb, var(--${color}) ${strength}%, transparent)`, tip: cellTip(c) },
    write(e[0]), write(e[1] ?? e[0]) === write(e[2] ?? e[0]) ? null : h("small", {}, ` ${range(e, write)}`), beside);
}
function cellTip(c) {
  const lines = [cellText(c), `won ${c.won} of ${plural(c.episodes - c.errors, "episode")} (${plural(c.games, "game")})`];
  for (const name of ["delta", "beta", "kappa"]) if (c[name]) lines.push(`${{ delta: "δ", beta: "β", kappa: "κ" }[name]} ${nats(c[name][0])} ${range(c[name], nats)}`);
  if (c.points) lines.push(plural(c.points, "audited point"));
  if (c.errors) lines.push(`${plural(c.errors, "episode")} failed and counted apart`);
  return lines.join("\n");
}

// ---- charts, one panel per chosen budget

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
const estimatePoint = (x, e, text, write) => ({ x, y: e[0], low: e[1], high: e[2], tip: `${text}\n${write(e[0])} ${range(e, write)}${e[3] ? `\n${plural(e[3], "game")}` : ""}` });

function decomposition() {
  const bars = (budget) => D.memories.flatMap(({ name }) => D.cells
    .filter((c) => c.memory === name && inPanel(c, budget) && cellShown(c) && c.delta && c.beta && c.kappa)
    .map((c, i) => ({ head: i === 0 ? name : null, memory: name, text: `F′ ${c.filler}`, beta: c.beta[0], kappa: c.kappa[0], delta: c.delta, tip: cellTip(c) })));
  panels("decomposition-body", (budget) => {
    const rows = bars(budget), limits = extent([...chosen.budget].flatMap(bars).concat(rows).flatMap(reach), true);
    return rows.length ? lossBars(rows, `δ as the sum of β and κ, ${budgetText(budget)}`, limits) : null;
  });
}

function byFiller() {
  panels("filler-body", (budget) => {
    const cells = D.cells.filter((c) => inPanel(c, budget) && cellShown(c) && c.kappa);
    const series = D.memories.map(({ name }) => ({ memory: name, points: cells.filter((c) => c.memory === name && c.protocol === D.protocols[0])
      .map((c) => estimatePoint(c.filler, c.kappa, cellText(c), nats)) })).filter((one) => one.points.length);
    const xs = D.fillers.filter((f) => chosen.filler.has(f)).map((f) => ({ x: f, text: f }));
    const limits = extent(D.cells.filter((c) => cellShown(c) && c.kappa).flatMap((c) => c.kappa.slice(0, 3)), true);
    return series.length ? lineChart({ series, xs, band: true, limits, yName: "κ, nats", xName: "filler steps F′", label: `Write-time regret against filler, ${budgetText(budget)}` }) : null;
  });
}

function binned(host, table, quantityName, xName) {
  panels(host, (budget) => {
    const rows = table.rows.filter((r) => inPanel(r, budget) && chosen.memory.has(r.memory));
    const series = rows.map((r) => ({ memory: r.memory, points: r.values.map((e, i) => e && estimatePoint(i, e, `${r.memory}, ${xName} ${table.bins[i]}`, nats)).filter(Boolean) })).filter((one) => one.points.length);
    const heads = ["memory", ...table.bins];
    const limits = extent(table.rows.filter((r) => chosen.memory.has(r.memory)).flatMap((r) => r.values.flatMap((e) => (e ? e.slice(0, 3) : []))), true);
    return series.length ? h("div", {}, lineChart({ series, xs: table.bins.map((text, x) => ({ x, text })), band: true, limits, yName: `${quantityName}, nats`, xName, label: `${quantityName} by ${xName}` }),
      dataTable(heads, rows.map((r) => [r.memory, ...r.values.map((e) => (e ? `${nats(e[0])} ${range(e, nats)}` : "–"))]))) : null;
  });
}

function association() {
  const paint = () => {
    const points = D.cells.filter((c) => cellShown(c) && c.delta && c.success).map((c) => ({ memory: c.memory, x: c.delta[0], y: c.success[0], tip: cellTip(c) }));
    $("association-body").replaceChildren(points.length ? scatter(points, "Games won against the sufficiency gap, one mark per cell") : h("p", { class: "empty" }, "Nothing to draw for this choice."));
  };
  listeners.push(paint);
  paint();
}

function missing(host, text) {
  const parts = text.split("`");
  $(host).replaceChildren(h("p", { class: "empty" }, parts.map((part, i) => (i % 2 ? h("code", {}, part) : part))));
}

"use strict";
// Step through any episode, alone or beside another memory on the same game and lag.

const E = { game: null, filler: null, budget: null, protocol: null, left: null, right: null, step: 0, data: null, all: [], removed: true };
const NONE = "(none)";

const episodesOf = (game) => D.episodes.filter((one) => D.games[one[0]].id === game).map((one) => ({ row: one, cell: D.cells[one[1]] }));
const unique = (values) => [...new Set(values)];
const byNumber = (a, b) => a - b;

function explorer() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const start = D.games.some((g) => g.id === wanted.get("game")) ? wanted.get("game") : D.start.game;
  fill($("picks"), {}, [picker("game", "Game", () => D.games.map((g) => [g.id, `${g.id} (${g.level} ${D.words.level})`])),
    picker("filler", "Filler F′", () => unique(episodesOf(E.game).map((e) => e.cell.filler)).sort(byNumber).map((f) => [f, f])),
    D.budgets.length ? picker("budget", "Budget", () => unique(episodesOf(E.game).map((e) => e.cell.budget).filter((b) => b !== null)).sort(byNumber).map((b) => [b, b])) : null,
    D.protocols.length > 1 ? picker("protocol", "Protocol", () => unique(episodesOf(E.game).map((e) => e.cell.protocol)).map((p) => [p, p])) : null,
    picker("left", "Memory", () => E.all.map((one, i) => [i, one.label])),
    picker("right", "Beside it", () => [[NONE, NONE], ...E.all.map((one, i) => [i, one.label])])]);
  $("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  $("back").addEventListener("click", () => go(E.step - 1));
  $("next").addEventListener("click", () => go(E.step + 1));
  $("removed").addEventListener("change", (event) => { E.removed = event.target.checked; paintPanes(); });
  $("everyone").addEventListener("change", paintFacts);
  document.addEventListener("keydown", keys);
  Object.assign(E, { game: start, filler: number(wanted.get("filler"), D.start.filler), budget: number(wanted.get("budget"), D.start.budget), protocol: wanted.get("protocol") || D.start.protocol });
  return load({ left: wanted.get("left") || D.start.left, right: wanted.get("right") || D.start.right, step: wanted.has("step") ? number(wanted.get("step"), 0) : null });
}
const number = (text, otherwise) => (text === null || text === "" || Number.isNaN(Number(text)) ? otherwise : Number(text));

function picker(name, title, options) {
  const select = h("select", { id: `pick-${name}`, onchange: () => {
    const value = select.value;
    if (name === "left" || name === "right") { E[name] = value === NONE ? null : E.all[Number(value)]; paint(); return; }
    E[name] = name === "game" || name === "protocol" ? value : Number(value);
    load({ left: E.left && E.left.label, right: E.right && E.right.label, step: E.step });
  } });
  select.options_ = options;
  return h("label", {}, title, select);
}
function refreshPicks() {
  for (const name of ["game", "filler", "budget", "protocol", "left", "right"]) {
    const select = $(`pick-${name}`);
    if (!select) continue;
    const value = name === "left" || name === "right" ? (E[name] ? E.all.indexOf(E[name]) : NONE) : E[name];
    select.replaceChildren(...select.options_().map(([v, text]) => h("option", { value: v, selected: String(v) === String(value) }, text)));
  }
}

async function load({ left, right, step }) {
  const all = episodesOf(E.game);
  const has = (name, value) => all.some((e) => e.cell[name] === value);
  for (const name of ["filler", "budget", "protocol"]) if (!has(name, E[name])) E[name] = (all.find((e) => e.cell[name] !== null) || all[0]).cell[name];
  const game = D.games.findIndex((g) => g.id === E.game), asked = E.game;
  const data = await chunk(game);
  if (E.game !== asked) return;
  E.data = data;
  const fits = all.filter((e) => e.cell.filler === E.filler && (e.cell.budget === null || e.cell.budget === E.budget) && e.cell.protocol === E.protocol);
  E.all = fits.map((e) => unfold(e, data));
  const seen = {};
  for (const one of E.all) { seen[one.label] = (seen[one.label] || 0) + 1; if (seen[one.label] > 1) one.label += ` #${seen[one.label]}`; }
  E.left = E.all.find((one) => one.label === left) || E.all[0] || null;
  E.right = E.all.find((one) => one.label === right) || null;
  E.step = step === null || step === undefined ? (E.left ? firstLoss() : 0) : step;
  paint();
}
const firstLoss = () => { const found = losses(E.left, E.data.facts); return found.length ? found[0].step : E.left.begin; };

function unfold({ row, cell }, data) {
  const [, , outcome, score, top, , reveal, begin, truncations, error, place] = row;
  const stored = data.episodes[place];
  return { label: cell.memory, cell, outcome, score, top, reveal, begin, truncations, error, ...stored };
}

// ---- moving

function lastStep() { return Math.max(0, ...[E.left, E.right].filter(Boolean).map((one) => one.steps.length - 1)); }
function go(step) {
  E.step = Math.max(0, Math.min(lastStep(), step));
  paintStep();
}
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  if (event.target.type === "range" && event.key.length > 1) return; // the slider moves itself
  const box = $("explorer").getBoundingClientRect();
  if (box.top > innerHeight * 0.75 || box.bottom < 120 || !E.left) return;
  const marks = jumps().map((one) => one.step);
  const actions = { ArrowLeft: () => go(E.step - (event.shiftKey ? 10 : 1)), ArrowRight: () => go(E.step + (event.shiftKey ? 10 : 1)), Home: () => go(0), End: () => go(lastStep()),
    n: () => go(marks.find((m) => m > E.step) ?? E.step), p: () => go(marks.filter((m) => m < E.step).pop() ?? E.step) };
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
}
function jumps() {
  const out = [];
  for (const one of [E.left, E.right].filter(Boolean)) {
    for (const found of losses(one, E.data.facts)) out.push({ step: found.step, kind: "loss", text: `${one.label} lost “${found.fact}”`, tip: `rewrite ${found.rewrites} after the ${D.words.task}, step ${found.step}` });
    for (const [step, a] of Object.entries(one.audits)) out.push({ step: Number(step), kind: "audit", text: `${one.label} κ ${nats(a[0] - a[2])}`, tip: `audited decision at step ${step}` });
  }
  return out.sort((a, b) => a.step - b.step);
}

// ---- painting

function paint() {
  refreshPicks();
  $("slider").max = lastStep();
  const marks = E.left ? jumps() : [];
  $("jumps").replaceChildren(...marks.map((one) => h("button", { type: "button", class: `jump ${one.kind}`, "data-step": one.step, tip: one.tip, onclick: () => go(one.step) }, `${one.step}: ${one.text}`)),
    marks.length ? "" : h("span", { class: "note" }, "No lost fact and no audited point here."));
  paintStep();
}
function paintStep() {
  E.step = Math.min(E.step, lastStep());
  $("slider").value = E.step;
  $("where").textContent = `step ${E.step} of ${lastStep()}`;
  $("slider").setAttribute("aria-valuetext", $("where").textContent);
  $("back").disabled = E.step === 0;
  $("next").disabled = E.step === lastStep();
  for (const one of $("jumps").children) one.classList.toggle("here", Number(one.dataset.step) === E.step);
  const here = $("jumps").querySelector(".here");
  if (here) $("jumps").scrollLeft = here.offsetLeft - $("jumps").offsetLeft - 40;
  paintFacts();
  paintPanes();
  const at = new URLSearchParams({ game: E.game, filler: E.filler, budget: E.budget ?? "", protocol: E.protocol, left: E.left ? E.left.label : "", right: E.right ? E.right.label : NONE, step: E.step });
  if (E.moved) history.replaceState(null, "", `#${at}`);
  E.moved = true;
}
function paintFacts() {
  if (!E.data.facts.length || !E.all.length) {
    $("facts").replaceChildren(h("p", { class: "empty" }, `The ${D.words.task} of this game holds no ${D.words.fact} that could be followed.`));
    return;
  }
  const pick = (one, step) => { if (one !== E.left && one !== E.right) { E.left = one; paint(); } go(step); $("explorer").scrollIntoView({ block: "start" }); };
  $("facts").replaceChildren(factChart(E.data, E.all.filter((one) => one === E.left || one === E.right || ($("everyone").checked && chosen.memory.has(one.cell.memory))), { step: E.step }, pick));
}
function paintPanes() {
  $("panes").classList.toggle("hide-removed", !E.removed);
  $("panes").replaceChildren(...[E.left, E.right].filter(Boolean).map(pane));
}
function pane(one) {
  const at = Math.min(E.step, one.steps.length - 1), over = E.step > at, [kind, place, action, seen, state, tokens, raw, note, decision] = one.steps[at];
  const text = (i) => (i === null ? null : E.data.strings[i]);
  const before = at ? text(one.steps[at - 1][4]) : "";
  return h("article", { class: "card pane", "data-memory": one.label },
    h("header", {}, h("h3", {}, named(one.label), " ", h("span", { class: "note" }, one.cell.budget === null ? "" : `${one.cell.budget} tokens`)),
      h("span", { class: `outcome ${one.outcome}` }, over ? `ended at step ${at}: ` : "", one.outcome, ` ${one.score}/${one.top}`)),
    one.error ? h("p", { class: "note" }, `Failed, not counted as a loss: ${one.error}`) : null,
    h("p", { class: "note" }, `step ${at} · ${KINDS[kind]} · ${text(place)}`, action === null ? "" : [" · after ", h("b", {}, text(action))]),
    h("h4", {}, "Observation"), h("p", { class: "text" }, text(seen).replace(/\n{3,}/g, "\n\n")),
    h("h4", {}, h("span", {}, "State after this rewrite"), meter(tokens, raw, one.cell.budget)),
    stateText(before, text(state), tokens, at), note === null ? null : h("p", { class: "note" }, `Note: ${text(note)}`),
    at in one.audits ? audit(one.audits[at], text) : null, decision ? options(decision, text) : null);
}
function meter(tokens, raw, budget) {
  if (budget === null) return h("span", { class: "num" }, `${tokens} tokens`);
  return [h("span", { class: "meter", tip: `${tokens} of ${budget} tokens${raw > tokens ? `, cut from ${raw}` : ""}` }, h("i", { style: `width:${Math.min(100, (100 * tokens) / budget)}%` })),
    h("span", { class: "num" }, `${tokens} / ${budget}`)];
}
function stateText(before, after, tokens, at) {
  if (after === null) return h("p", { class: "text state" }, h("span", { class: "note" }, `All ${plural(at, "step")} so far, word for word (${tokens} tokens).`));
  if (after === "" && !before) return h("p", { class: "text state" }, h("span", { class: "note" }, "(empty)"));
  return h("p", { class: "text state" }, difference(before || "", after).map(([kind, text]) => (kind === "same" ? text : h(kind === "add" ? "ins" : "del", {}, text))));
}
function audit([state, full, oracle, best, coverage], text) {
  const box = (name, sign, value, tip) => h("div", { class: `loss-box ${name}`, tip }, h("b", {}, nats(value)), h("span", {}, sign));
  return [h("h4", {}, "What was lost at this decision, in nats"),
    h("div", { class: "losses" }, box("delta", "δ gap", state - full, "loss with the state minus loss with the full history"), box("beta", "β budget", oracle - full, "what the budget costs even in hindsight"),
      box("kappa", "κ regret", state - oracle, "what the writer's choices cost"), h("div", { class: "loss-box" }, h("b", {}, percent(coverage)), h("span", {}, `${D.words.task} kept`))),
    h("details", { class: "data" }, h("summary", {}, "The best state in hindsight"), h("p", { class: "text state" }, text(best)))];
}
function options([commands, reference, played, top, logprobs], text) {
  const rows = commands.map((c, i) => ({ c, i, p: logprobs.length ? Math.exp(logprobs[i]) : null })).sort((a, b) => (b.p ?? 0) - (a.p ?? 0) || a.i - b.i);
  return [h("h4", {}, h("span", {}, "Options"), h("span", {}, `−log p(a*) = ${logprobs.length ? nats(-logprobs[commands.indexOf(reference)]) : "–"}`)),
    h("ul", { class: "options" }, rows.map(({ c, i, p }) => h("li", { class: `${c === reference ? "best" : ""} ${c === played ? "played" : ""}` },
      h("span", { class: "note" }, D.labels[i]),
      h("span", {}, text(c), c === reference ? h("span", { class: "tag ref", tip: "the reference action" }, "a*") : null, c === played ? h("span", { class: "tag" }, "chosen") : null, c === top && c !== played ? h("span", { class: "tag" }, "most likely") : null),
      h("span", { class: "p" }, h("i", { style: `width:${100 * (p ?? 0)}%` })), h("span", { class: "num" }, p === null ? "–" : p < 0.001 ? "<0.1 %" : `${(100 * p).toFixed(1)} %`))))];
}

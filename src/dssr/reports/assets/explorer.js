"use strict";
// Step through any episode, alone or beside any other.

const E = { sides: [null, null], step: 0, removed: true, against: "before", moved: false };
const NONE = "(none)", FIELDS = ["game", "memory", "budget", "filler", "protocol"];

const ALL = D.episodes.map(([game, cell, outcome, score, top, , reveal, begin, truncations, error, place, key, run]) =>
  ({ cell: D.cells[cell], chunk: game, game: D.games[game].id, outcome, score, top, reveal, begin, truncations, error, place, key, run }));
const valueOf = (one, field) => (field === "game" ? one.game : one.cell[field]);
const unique = (values) => [...new Set(values)];
const shown = () => E.sides.filter(Boolean);

function explorer() {
  const wanted = new URLSearchParams(location.hash.slice(1)), byKey = (key) => ALL.find((one) => key && one.key === key);
  const left = byKey(wanted.get("left")) || ALL[D.start.left] || ALL[0];
  const right = wanted.has("left") ? byKey(wanted.get("right")) : ALL[D.start.right];
  const step = wanted.has("step") ? Number(wanted.get("step")) || 0 : D.start.step;
  $("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  $("back").addEventListener("click", () => go(E.step - 1));
  $("next").addEventListener("click", () => go(E.step + 1));
  $("removed").addEventListener("change", (event) => { E.removed = event.target.checked; paintPanes(); });
  $("against").addEventListener("change", (event) => { E.against = event.target.value; paintPanes(); });
  $("everyone").addEventListener("change", paintFacts);
  document.addEventListener("keydown", keys);
  return open_([left, right || null], step);
}

// ---- choosing: each side has its own pickers, and the right one follows the left as long as the two agree

function picker(side, field, title, options, value) {
  if (options.length < 2 && field !== "game" && field !== "memory") return null;
  const select = h("select", { id: `pick-${side ? "right" : "left"}-${field}`, onchange: () => choose(side, field, select.value) },
    options.map(([v, text]) => h("option", { value: v, selected: String(v) === String(value) }, text)));
  return h("label", {}, title, select);
}
function pickers(side) {
  const one = E.sides[side], base = one || E.sides[0], mine = ALL.filter((e) => e.game === base.game);
  const of = (list, field) => unique(list.map((e) => valueOf(e, field))).filter((v) => v !== null).sort((a, b) => a - b).map((v) => [v, v]);
  const written = mine.filter((e) => e.cell.memory === base.cell.memory);
  const memories = unique(mine.map((e) => e.cell.memory)).map((m) => [m, m]);
  const games = D.games.map((g) => [g.id, g.level === null ? g.id : `${g.id} (${g.level} ${D.words.level})`]);
  return h("div", { class: "picks", role: "group", "aria-label": side ? "Beside it" : "Episode" }, h("b", {}, side ? "Beside it" : "Episode"),
    picker(side, "memory", "Memory", side ? [[NONE, NONE], ...memories] : memories, one ? one.cell.memory : NONE),
    one && [picker(side, "game", D.words.unit[0].toUpperCase() + D.words.unit.slice(1), games, one.game),
      picker(side, "filler", "Filler F′, steps", of(written, "filler"), one.cell.filler),
      picker(side, "budget", "Budget, tokens", of(written, "budget"), one.cell.budget),
      picker(side, "protocol", "Protocol", of(written, "protocol"), one.cell.protocol)]);
}
function choose(side, field, value) {
  const sides = [...E.sides], before = sides[side] || sides[0];
  if (field === "memory" && value === NONE) sides[1] = null;
  else sides[side] = nearest(before, field, value);
  if (side === 0 && sides[1] && field !== "memory" && valueOf(E.sides[1], field) === valueOf(before, field)) sides[1] = nearest(E.sides[1], field, value);
  return open_(sides, E.step);
}
// The episode with that value which agrees with this one in most of the rest; game and memory count most.
function nearest(one, field, value) {
  const weight = { game: 8, memory: 9, filler: 4, protocol: 2, budget: 3 };
  const agrees = (e) => FIELDS.reduce((sum, name) => sum + (name !== field && valueOf(e, name) === valueOf(one, name) ? weight[name] : 0), 0);
  return ALL.filter((e) => String(valueOf(e, field)) === String(value)).reduce((best, e) => (!best || agrees(e) > agrees(best) ? e : best), null) || one;
}

async function open_(sides, step) {
  E.asked = sides;
  try {
    for (const one of sides) if (one && !one.steps) unfold(one.chunk, await chunk(one.chunk));
  } catch (error) {
    $("explorer-note").textContent = `${error.message}: only the most telling episodes are inside this file. Copy the folder “episodes” along with it to look at the others.`;
    paintPicks();
    return;
  }
  if (E.asked !== sides) return;
  $("explorer-note").textContent = "";
  E.sides = sides;
  E.step = step ?? sides[0].begin;
  paint();
}

function unfold(game, { episodes, facts, strings }) {
  for (const one of ALL) if (one.chunk === game) Object.assign(one, episodes[one.place], { facts, strings });
}

// ---- moving

function lastStep() { return Math.max(0, ...shown().map((one) => one.steps.length - 1)); }
function go(step) {
  E.step = Math.max(0, Math.min(lastStep(), step));
  paintStep();
}
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  if (event.target.type === "range" && event.key.length > 1) return; // the slider moves itself
  const box = $("explorer").getBoundingClientRect();
  if (box.top > innerHeight * 0.75 || box.bottom < 120 || !E.sides[0]) return;
  const marks = jumps().map((one) => one.step);
  const actions = { ArrowLeft: () => go(E.step - (event.shiftKey ? 10 : 1)), ArrowRight: () => go(E.step + (event.shiftKey ? 10 : 1)), Home: () => go(0), End: () => go(lastStep()),
    n: () => go(marks.find((m) => m > E.step) ?? E.step), p: () => go(marks.filter((m) => m < E.step).pop() ?? E.step) };
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
}
function jumps() {
  const out = [];
  for (const one of shown()) {
    const name = labelOf(one);
    for (const found of losses(one, one.facts)) out.push({ step: found.step, one, kind: "loss", text: `${name} lost “${found.fact}”`, tip: `rewrite ${found.rewrites} after the ${D.words.task}, step ${found.step}` });
    for (const [step, a] of Object.entries(one.audits)) out.push({ step: Number(step), one, kind: "audit", text: `${name} κ ${nats(a[0] - a[2])}`, tip: `audited decision at step ${step}` });
  }
  return out.sort((a, b) => a.step - b.step);
}
// The memory's name, and whatever else tells the two sides apart.
function labelOf(one) {
  const [left, right] = E.sides;
  if (!right) return one.cell.memory;
  const words = { budget: (v) => `${v} tokens`, filler: (v) => `F′ ${v}` };
  const apart = FIELDS.filter((f) => f !== "memory" && valueOf(one, f) !== null && valueOf(left, f) !== valueOf(right, f));
  return [one.cell.memory, ...(left.cell.memory === right.cell.memory ? apart : apart.filter((f) => f !== "budget" || (left.cell.budget && right.cell.budget))).map((f) => (words[f] || String)(valueOf(one, f)))].join(", ");
}

// ---- painting

function paintPicks() {
  const active = document.activeElement && document.activeElement.id;
  $("picks").replaceChildren(pickers(0), pickers(1));
  if (active && active.startsWith("pick-") && $(active)) $(active).focus();
}
function paint() {
  paintPicks();
  $("slider").max = lastStep();
  $("against").disabled = !E.sides[1];
  const marks = jumps();
  $("jumps").replaceChildren(...marks.map((one) => h("button", { type: "button", class: `jump ${one.kind}`, "data-step": one.step, "data-memory": one.one.cell.memory, tip: one.tip, onclick: () => go(one.step) }, `${one.step}: ${one.text}`)),
    marks.length ? "" : h("span", { class: "note" }, "No lost fact and no audited decision here."));
  paintStep();
}
function paintStep() {
  E.step = Math.max(0, Math.min(E.step, lastStep()));
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
  const marks = jumps().filter((one) => one.step === E.step).map((one) => one.text);
  if (E.moved) {
    $("said").textContent = [$("where").textContent, ...marks].join("; ");
    const at = new URLSearchParams({ left: E.sides[0].key, right: E.sides[1] ? E.sides[1].key : "", step: E.step });
    history.replaceState(null, "", `#${at}`);
  }
  E.moved = true;
}
function paintFacts() {
  if (!E.sides[0]) return;
  const beside = $("everyone").checked ? ALL.filter((one) => one.steps && FIELDS.every((f) => f === "memory" || valueOf(one, f) === null || valueOf(one, f) === valueOf(E.sides[0], f)) && chosen.memory.has(one.cell.memory)) : [];
  const blocks = unique([...shown(), ...beside]).filter((one) => one.facts.length).map((one) => ({ one, facts: one.facts }));
  if (!blocks.length) {
    $("facts").replaceChildren(h("p", { class: "empty" }, `There is no ${D.words.fact} here that could be followed.`));
    return;
  }
  const pick = (one, step) => { if (!E.sides.includes(one)) open_([one, E.sides[1]], step); else go(step); };
  $("facts").replaceChildren(factChart(blocks, E.step, pick));
}
function paintPanes() {
  $("panes").classList.toggle("hide-removed", !E.removed);
  $("panes").replaceChildren(...shown().map(pane));
}
const stateAt = (one, step) => { const place = one.steps[Math.max(0, Math.min(step, one.steps.length - 1))][4]; return place === null ? null : one.strings[place]; };
function pane(one) {
  const at = Math.min(E.step, one.steps.length - 1), over = E.step > at, [kind, place, action, seen, state, tokens, raw, note, decision] = one.steps[at];
  const text = (i) => (i === null ? null : one.strings[i]), other = shown().find((e) => e !== one);
  const across = E.against === "other" && other, before = across ? stateAt(other, E.step) : at ? text(one.steps[at - 1][4]) : "";
  const fork = one.run === null ? null : `dssr fork ${D.runs[one.run]} ${one.key} ${at}`;
  return h("article", { class: "card pane", "data-memory": one.cell.memory, "aria-label": `${labelOf(one)}, step ${at}` },
    h("header", {}, h("h3", {}, named(one.cell.memory), " ", h("span", { class: "note" }, [one.cell.budget === null ? null : `${one.cell.budget} tokens`, D.fillers.length > 1 ? `F′ ${one.cell.filler}` : null, one.game].filter(Boolean).join(" · "))),
      one.outcome ? h("span", { class: `outcome ${one.outcome}` }, over ? `ended at step ${at}: ` : "", ended(one), one.top === null ? "" : ` ${one.score}/${one.top}`) : null),
    one.error ? h("p", { class: "note" }, `Failed, not counted as a loss: ${one.error}`) : null,
    h("p", { class: "note" }, [`step ${at}`, KINDS[kind] || kind, text(place)].filter(Boolean).join(" · "), action === null ? "" : [" · after ", h("b", {}, text(action))]),
    h("h4", {}, "Observation"), tall(h("p", { class: "text", tabindex: 0 }, text(seen).replace(/\n{3,}/g, "\n\n"))),
    h("h4", {}, h("span", {}, across ? "State, marked against the other one" : "State after this rewrite"), meter(tokens, raw, one.cell.budget)),
    stateText(before, text(state), tokens, at, one.cell.budget !== null), note === null ? null : h("p", { class: "note" }, `Note: ${text(note)}`),
    at in one.audits ? audit(one.audits[at], text) : null, decision ? options(decision, text) : null,
    fork ? h("details", { class: "data" }, h("summary", {}, "Play on from here"), h("p", { class: "note" }, "The same step again, or with a state of your own (--state FILE):"), h("code", { class: "command" }, fork)) : null);
}
function meter(tokens, raw, budget) {
  if (budget === null) return h("span", { class: "num" }, `${tokens} tokens`);
  return [h("span", { class: "meter", tip: `${tokens} of ${budget} tokens${raw > tokens ? `, cut from ${raw}` : ""}` }, h("i", { style: `width:${Math.min(100, (100 * tokens) / budget)}%` })),
    h("span", { class: "num" }, `${tokens} / ${budget} tokens`)];
}
function stateText(before, after, tokens, at, bounded) {
  if (after === null && bounded) return h("p", { class: "text state" }, h("span", { class: "note" }, "No state: the episode is over."));
  if (after === null) return h("p", { class: "text state" }, h("span", { class: "note" }, `All ${plural(at, "step")} so far, word for word (${tokens} tokens).`));
  if (after === "" && !before) return h("p", { class: "text state" }, h("span", { class: "note" }, "(empty)"));
  return tall(h("p", { class: "text state", tabindex: 0 }, difference(before || "", after).map(([kind, text]) => (kind === "same" ? text : h(kind === "add" ? "ins" : "del", {}, text)))));
}
function audit([state, full, oracle, best, coverage], text) {
  const box = (name, sign, value, tip) => h("div", { class: `loss-box ${name}`, tip }, h("b", {}, nats(value)), h("span", {}, sign));
  return [h("h4", {}, "What was lost at this decision, in nats"),
    h("div", { class: "losses" }, box("delta", "δ gap", state - full, "loss with the state minus loss with the full history"), box("beta", "β budget", oracle - full, "what the best of the untrained writer's hindsight states still loses: a reference, not a bound"),
      box("kappa", "κ regret", state - oracle, "what the writer's choices cost against that hindsight state"), coverage === null ? null : h("div", { class: "loss-box" }, h("b", {}, percent(coverage)), h("span", {}, D.words.unit === "game" ? `${D.words.task} kept` : `${D.words.facts} kept`))),
    best === null ? null : h("details", { class: "data" }, h("summary", {}, "The best state in hindsight"), h("p", { class: "text state" }, text(best)))];
}
// What the reader hardly thinks of is folded away, unless it is the reference or was played.
function options([commands, reference, played, top, logprobs], text) {
  const rows = commands.map((c, i) => ({ c, i, p: logprobs.length ? Math.exp(logprobs[i]) : null })).sort((a, b) => (b.p ?? 0) - (a.p ?? 0) || a.i - b.i);
  const line = ({ c, i, p }) => h("li", { class: `${c === reference ? "best" : ""} ${c === played ? "played" : ""}` },
    h("span", { class: "note" }, D.labels[i]),
    h("span", {}, text(c), c === reference ? h("span", { class: "tag ref", tip: "the reference action" }, "a*") : null, c === played ? h("span", { class: "tag" }, "chosen") : null, c === top && c !== played ? h("span", { class: "tag" }, "most likely") : null),
    p === null ? null : h("span", { class: "p" }, h("i", { style: `width:${100 * p}%` })), p === null ? null : h("span", { class: "num" }, p < 0.001 ? "<0.1\u00a0%" : `${(100 * p).toFixed(1)}\u00a0%`));
  if (!logprobs.length) return [h("h4", {}, commands.length > 1 ? "Options" : "The action that was taken"), h("ul", { class: "options plain" }, rows.map(line))];
  const said = rows.filter(({ c, p }) => p === null || p >= 0.001 || c === reference || c === played), folded = rows.filter((one) => !said.includes(one));
  return [h("h4", {}, h("span", {}, "Options and the reader's probability"), h("span", {}, `−log p(a*) = ${nats(-logprobs[commands.indexOf(reference)])} nats`)),
    h("ul", { class: "options" }, said.map(line)),
    folded.length ? h("details", { class: "data" }, h("summary", {}, `${plural(folded.length, "option")} below 0.1\u00a0%`), h("ul", { class: "options" }, folded.map(line))) : null];
}

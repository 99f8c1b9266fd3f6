"use strict";
// When each fact was there and when it went: the share kept after each rewrite, and every single one step by step.

const KINDS = { start: "start", explore: "explore", reveal: `${D.words.task} shown`, filler: "filler", act: "act" };

function survival() {
  panels("survival-body", (budget) => {
    const rows = D.survival.filter((r) => inPanel(r, budget) && chosen.memory.has(r.memory));
    const series = rows.map((r) => ({ memory: r.memory, points: r.share.map((v, i) => ({
      x: i, y: v, low: null, high: null, tip: `${r.memory}, ${plural(i, "rewrite")} after the ${D.words.task}\n${percent(v)} of the ${D.words.facts} in the state\n${plural(r.counts[i], "episode")}` })) }));
    const longest = Math.max(1, ...rows.map((r) => r.share.length - 1)), marks = ticks(0, longest, 6, true);
    const xs = marks.map(({ v, text }) => ({ x: v, text }));
    return rows.length ? h("div", {}, lineChart({ series, xs: [...xs, { x: longest, text: "" }], limits: [0, 1.02], unit: 100,
      yName: `${D.words.fact}s in the state, %`, xName: `since the ${D.words.task} was shown, rewrites`, label: `Share of ${D.words.facts} in the state, in %, by rewrites, ${budgetText(budget)}` }),
      dataTable(["memory", ...marks.map((one) => one.text)], rows.map((r) => [named(r.memory), ...marks.map(({ v }) => percent(r.share[v]))]))) : null;
  });
}

// Stretches of a string like "0011101" as [first, last, present]; carrying a fact out begins a new one.
function stretches(present, from, done) {
  const out = [];
  for (let i = from; i < present.length; i++) {
    const here = present[i] === "1", last = out[out.length - 1];
    if (last && last[2] === here && i !== done) last[1] = i; else out.push([i, i, here]);
  }
  return out;
}

// Rewrites that dropped a fact which the state before still held and which was not carried out yet.
function losses(one, facts) {
  const found = [];
  facts.forEach((text, d) => {
    const present = one.present[d], done = one.done[d];
    for (let i = one.reveal + 1; i < present.length; i++)
      if (present[i] === "0" && present[i - 1] === "1" && (done < 0 || i < done)) found.push({ step: i, fact: text, rewrites: i - one.reveal });
  });
  return found.sort((a, b) => a.step - b.step);
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text); // the bar's tip has it whole

// One block of rows per episode, each `{one, facts}`; `pick(episode, step)` is called on a click. Where there is little
// room, the words stand above their bar instead of beside it.
function factChart(blocks, step, pick) {
  return chartBox((wide) => {
    const roomy = wide > 560 && blocks.every(({ facts }) => facts.every((text) => text.length <= 30)), left = roomy ? 190 : 6, right = 10, line = roomy ? 14 : 27, title = 15, gap = 20;
    const longest = Math.max(...blocks.map(({ one }) => one.steps.length));
    const x = scale(0, longest, left, wide - right), cell = (wide - right - left) / longest;
    const heads = blocks.map(({ one }) => senseLines(headOf(one), Math.floor((wide - 8) / 7)));
    let high = 42;
    const tops = blocks.map(({ facts }, i) => { const top = high; high += heads[i].length * title + facts.length * line + gap; return top; });
    const out = svgOf(wide, high, `Which ${D.words.fact}s the state held, step by step`);
    out.append(axis((left + wide - right) / 2, 11, "step of the episode", "middle"));
    for (const { v, text } of ticks(0, longest - 1, wide > 560 ? 10 : 5, true)) out.append(s("text", { class: "tick x", x: x(v + 0.5), y: 26, "text-anchor": "middle" }, text));
    blocks.forEach(({ one, facts }, at) => {
      heads[at].forEach((text, n) => out.append(s("text", { x: 0, y: tops[at] + title * n, class: "strong", style: `fill:${look(one.cell.memory).color}` }, text)));
      out.append(...factRows(facts, one, x, tops[at] + title * heads[at].length, { wide, roomy, line, cell }, pick));
    });
    if (step !== null) out.append(s("line", { x1: x(step + 0.5), x2: x(step + 0.5), y1: 30, y2: high - 8, stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "3 2", "pointer-events": "none" }));
    return out;
  });
}
const headOf = (one) => `${one.cell.memory}${one.cell.budget === null ? "" : `, ${one.cell.budget} tokens`}${D.fillers.length > 1 ? `, F′ ${one.cell.filler}` : ""}, ${one.game}${one.outcome ? `: ${ended(one)} ${one.score}/${one.top}` : ""}`;
const ended = (one) => (one.outcome === "logged" ? "as logged" : one.outcome);
function factRows(facts, one, x, y, { wide, roomy, line, cell }, pick) {
  const out = [], last = one.steps.length - 1, press = (i) => ({ onclick: () => pick(one, i), style: "cursor:pointer" });
  const phases = [["explore", 0, one.reveal], [D.words.task, one.reveal, one.reveal + 1], ["filler", one.reveal + 1, one.begin], ["act", one.begin, last + 1]];
  for (const [name, from, to] of phases) if (to > from) {
    out.push(s("rect", { x: x(from), y: y - 8, width: Math.max(1, x(to) - x(from) - 1), height: 4, rx: 1, fill: name === D.words.task ? "var(--accent)" : name === "act" ? "var(--soft)" : "var(--line)", tip: `${name}: steps ${from}–${to - 1}` }));
  }
  facts.forEach((text, d) => {
    const top = y + d * line + (roomy ? 0 : 13);
    out.push(s("text", { x: 0, y: roomy ? top + 9 : top - 3, class: "fact" }, cut(text, Math.floor((wide - 8) / 6))));
    for (const [from, to, here] of stretches(one.present[d], one.reveal, one.done[d])) {
      const done = one.done[d] >= 0 && from >= one.done[d], gone = !here && !done;
      const word = here ? "in the state" : done ? "carried out, no longer needed" : from > one.reveal ? `lost by rewrite ${from - one.reveal} (step ${from})` : "never taken up";
      out.push(s("rect", { ...press(from), x: x(from), y: top, width: Math.max(1, (to - from + 1) * cell - 0.6), height: 10, rx: 1.5,
        fill: here ? "var(--good)" : gone ? "var(--del)" : "var(--wash)", stroke: gone ? "var(--kappa)" : "none", "stroke-width": gone ? 0.6 : 0, tip: `${one.cell.memory}: ${text}\nsteps ${from}–${to}: ${word}` }));
      if (gone && from > one.reveal) out.push(s("path", { ...press(from), d: `M${x(from) - 3},${top - 1}h6l-3,5z`, fill: "var(--kappa)", class: "lost", tip: `${text}\n${word}\nclick to see the rewrite` }));
    }
    if (one.done[d] >= 0) out.push(s("path", { d: shapePath("circle", x(one.done[d]) + cell / 2, top + 5, 3), fill: "var(--ink)", tip: `${text}: carried out at step ${one.done[d]}` }));
  });
  return out;
}

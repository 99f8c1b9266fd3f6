"use strict";
// When each fact was there and when it went: the share kept after each rewrite, and every single one step by step.

const KINDS = { start: "start", explore: "explore", reveal: `${D.words.task} shown`, filler: "filler", act: "act" };

function survival() {
  panels("survival-body", (budget) => {
    const rows = D.survival.filter((r) => inPanel(r, budget) && chosen.memory.has(r.memory));
    const series = rows.map((r) => ({ memory: r.memory, points: r.share.map((v, i) => ({
      x: i, y: v, low: null, high: null, tip: `${r.memory}, ${plural(i, "rewrite")} after the ${D.words.task}\n${percent(v)} of its ${D.words.fact}s in the state\n${plural(r.counts[i], "episode")}` })) }));
    const longest = Math.max(1, ...rows.map((r) => r.share.length - 1));
    const xs = ticks(0, longest, 6).map((v) => ({ x: v, text: v }));
    return rows.length ? lineChart({ series, xs: [...xs, { x: longest, text: "" }], limits: [0, 1.02], band: false, tick: (v) => `${Math.round(100 * v)}`,
      yName: `${D.words.task} ${D.words.fact}s in the state, %`, xName: `rewrites since the ${D.words.task} was shown`, label: `Share of ${D.words.task} ${D.words.fact}s kept, ${budgetText(budget)}` }) : null;
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

// One block of rows per episode; `pick(episode, step)` is called on a click.
function factChart(data, episodes, current, pick) {
  return chartBox((wide) => {
    const left = wide > 560 ? 168 : 92, right = 10, line = 14, gap = 30, top = 30;
    const longest = Math.max(...episodes.map((one) => one.steps.length));
    const x = scale(0, longest, left, wide - right), step = (wide - right - left) / longest;
    const high = top + episodes.length * (data.facts.length * line + gap);
    const out = s("svg", { viewBox: `0 0 ${wide} ${high}`, height: high, role: "img", "aria-label": "Facts in the state, step by step" });
    for (const v of ticks(0, longest, wide > 560 ? 10 : 5)) out.append(s("text", { class: "tick", x: x(v), y: 12, "text-anchor": "middle" }, v));
    episodes.forEach((one, at) => {
      const y = top + at * (data.facts.length * line + gap);
      out.append(...factRows(data, one, x, y, { wide, left, line, step, right }, pick));
    });
    if (current) {
      out.append(s("line", { x1: x(current.step + 0.5), x2: x(current.step + 0.5), y1: 16, y2: high - 14, stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "3 2" }));
    }
    return out;
  });
}
function factRows(data, one, x, y, size, pick) {
  const { wide, left, line, step } = size, last = one.steps.length - 1;
  const out = [s("text", { x: 0, y: y + 2, class: "strong", style: `fill:${look(one.cell.memory).color}` }, clip(one.label, wide > 560 ? 22 : 12)),
    s("text", { x: left - 10, y: y + 2, "text-anchor": "end" }, wide > 560 ? `${one.outcome} ${one.score}/${one.top}` : "")];
  const press = (i) => ({ onclick: () => pick(one, i), style: "cursor:pointer" });
  const phases = [["explore", 0, one.reveal], [D.words.task, one.reveal, one.reveal + 1], ["filler", one.reveal + 1, one.begin], ["act", one.begin, last + 1]];
  for (const [name, from, to] of phases) if (to > from) {
    out.push(s("rect", { x: x(from), y: y - 7, width: Math.max(1, x(to) - x(from) - 1), height: 4, rx: 1, fill: name === D.words.task ? "var(--accent)" : name === "act" ? "var(--soft)" : "var(--line)", tip: `${name}: steps ${from}–${to - 1}` }));
    if (x(to) - x(from) > 44 && wide > 560) out.push(s("text", { x: x(from) + 2, y: y + 3, style: "font-size:10px;fill:var(--faint)" }, name));
  }
  data.facts.forEach((text, d) => {
    const top = y + 8 + d * line;
    out.push(s("text", { x: 0, y: top + 9, style: "font-size:11px" }, clip(text, wide > 560 ? 26 : 14)));
    for (const [from, to, here] of stretches(one.present[d], one.reveal, one.done[d])) {
      const done = one.done[d] >= 0 && from >= one.done[d], gone = !here && !done;
      const word = here ? "in the state" : done ? "carried out, no longer needed" : from > one.reveal ? `lost by rewrite ${from - one.reveal} (step ${from})` : "never taken up";
      out.push(s("rect", { ...press(from), x: x(from), y: top, width: Math.max(1, (to - from + 1) * step - 0.6), height: line - 4, rx: 1.5,
        fill: here ? "var(--good)" : gone ? "var(--del)" : "var(--wash)", stroke: gone ? "var(--kappa)" : "none", "stroke-width": gone ? 0.6 : 0, tip: `${one.label}: ${text}\nsteps ${from}–${to}: ${word}` }));
      if (gone && from > one.reveal) out.push(s("path", { ...press(from), d: `M${x(from) - 3},${top - 1}h6l-3,5z`, fill: "var(--kappa)", class: "lost", tip: `${text}\n${word}\nclick to see the rewrite` }));
    }
    if (one.done[d] >= 0) out.push(s("path", { d: shapePath("circle", x(one.done[d]) + step / 2, top + (line - 4) / 2, 3), fill: "var(--ink)", tip: `${text}: carried out at step ${one.done[d]}` }));
  });
  return out;
}

"use strict";
// Charts as plain SVG. Each draw function gets a host element and redraws when the host changes width.

function drawn(host, draw) {
  let last = 0;
  const paint = () => {
    const wide = Math.floor(host.clientWidth);
    if (!wide || wide === last) return;
    last = wide;
    host.replaceChildren(...[draw(wide)].flat());
  };
  new ResizeObserver(paint).observe(host);
  paint();
  return host;
}
const chartBox = (draw) => drawn(h("div", { class: "chart" }), draw);
const svgOf = (wide, high, label) => reachable(s("svg", { viewBox: `0 0 ${wide} ${high}`, height: high, role: "img", "aria-roledescription": "chart", "aria-label": `${label}. Arrow keys read the values.` }));
const axis = (x, y, text, anchor) => s("text", { class: "axis", x, y, "text-anchor": anchor }, text);

// Steps of 1, 2 or 5 times a power of ten; `whole` for what is counted.
function ticks(low, high, count, whole) {
  const rough = Math.max((high - low) / Math.max(1, count), whole ? 1 : 0), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((one) => one >= rough * 0.9);
  const out = [];
  for (let v = Math.ceil(low / step - 1e-9); v * step <= high + step * 1e-6; v++) out.push(v * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return out.map((v) => ({ v, text: v === 0 ? "0" : minus(v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })) }));
}
const scale = (a, b, from, to) => (v) => (b === a ? (from + to) / 2 : from + ((v - a) / (b - a)) * (to - from));
function extent(values, includeZero) {
  const known = values.filter((v) => v !== null && v !== undefined && Number.isFinite(v));
  if (includeZero) known.push(0);
  let low = Math.min(...known), high = Math.max(...known);
  if (!known.length) [low, high] = [0, 1];
  if (high - low < 1e-9) high = low + 1;
  const pad = (high - low) * 0.06;
  return [low < 0 ? low - pad : low, high + pad];
}

// Labels at the ends of lines, pushed apart until none overlap.
function spread(items, gap, low, high) {
  items.sort((a, b) => a.y - b.y);
  items.forEach((one, i) => { one.at = Math.max(one.y, i ? items[i - 1].at + gap : low); });
  for (let i = items.length - 1, limit = high; i >= 0; i--, limit = items[i + 1].at - gap) items[i].at = Math.min(items[i].at, limit);
  return items;
}

// options: {series: [{memory, points: [{x, y, low, high, tip}]}], xs: [{x, text}], yName, xName, label, limits, gaps, unit}
// `gaps`: points more than one apart are not joined, since nothing was measured between them. `unit`: of y, 100 for shares.
function lineChart(options) {
  return chartBox((wide) => {
    const longest = Math.max(0, ...options.series.map((one) => one.memory.length)), ends = wide > 330 && longest <= 13;
    const m = { l: 44, r: ends ? 18 + 6.6 * longest : 14, t: 22, b: 40 }, high = 260, unit = options.unit || 1;
    const all = options.series.flatMap((one) => one.points);
    const [y0, y1] = options.limits || extent(all.flatMap((p) => [p.y, p.low, p.high]), true);
    const xs = options.xs.map((one) => one.x);
    const x = scale(Math.min(...xs), Math.max(...xs), m.l + 12, wide - m.r - 8), y = scale(y0, y1, high - m.b, m.t);
    const out = svgOf(wide, high, options.label);
    for (const { v, text } of ticks(unit * y0, unit * y1, 5)) out.append(
      s("line", { class: v === 0 ? "zero" : "grid", x1: m.l, x2: wide - m.r, y1: y(v / unit), y2: y(v / unit) }),
      s("text", { class: "tick y", x: m.l - 7, y: y(v / unit) + 4, "text-anchor": "end" }, text));
    const marked = options.xs.filter((one) => one.text !== ""), room = Math.max(...marked.map((one) => 7 * String(one.text).length + 8));
    let every = 1;
    while (marked.some((one, i) => i % every === 0 && marked[i + every] && x(marked[i + every].x) - x(one.x) < room)) every++;
    marked.forEach((one, i) => { if (i % every === 0) out.append(s("text", { class: "tick x", x: x(one.x), y: high - m.b + 18, "text-anchor": "middle" }, one.text)); });
    out.append(axis((m.l + wide - m.r) / 2, high - 4, options.xName, "middle"), axis(4, 12, options.yName));
    const groups = options.series.map((one) => {
      const group = seriesMarks(one, x, y, options);
      group.addEventListener("pointerenter", () => groups.forEach((g) => g.classList.toggle("fade", g !== group)));
      group.addEventListener("pointerleave", () => groups.forEach((g) => g.classList.remove("fade")));
      return group;
    });
    out.append(...groups);
    if (!ends) return [out, key(options.series.map((one) => one.memory))];
    const labels = options.series.map((one) => ({ memory: one.memory, y: y(one.points[one.points.length - 1].y) }));
    for (const one of spread(labels, 14, m.t, high - m.b)) out.append(
      s("text", { class: "end", x: wide - m.r + 8, y: one.at + 4, style: `fill:${look(one.memory).color}` }, one.memory));
    return out;
  });
}
const key = (memories) => h("ul", { class: "key", "aria-label": "Memories" }, memories.map((one) => h("li", {}, named(one))));

function seriesMarks(one, x, y, options) {
  const { color, shape } = look(one.memory), group = s("g", { class: "series" }), runs = [];
  for (const p of one.points) {
    const run = runs[runs.length - 1];
    if (run && !(options.gaps && p.x - run[run.length - 1].x > 1)) run.push(p); else runs.push([p]);
  }
  const bounded = (p) => p.low !== null && p.low !== undefined;
  for (const run of runs) {
    if (run.length > 1) {
      if (run.every(bounded)) {
        const upper = run.map((p) => `${x(p.x)},${y(p.high)}`), lower = run.map((p) => `${x(p.x)},${y(p.low)}`).reverse();
        group.append(s("polygon", { class: "band", points: [...upper, ...lower].join(" "), fill: color, opacity: 0.09 }));
      }
      group.append(s("path", { class: "line", d: `M${run.map((p) => `${x(p.x)},${y(p.y)}`).join("L")}`, fill: "none", stroke: color, "stroke-width": 2, "stroke-linejoin": "round" }));
    }
    if (run.length === 1 || !run.every(bounded)) for (const p of run.filter(bounded))
      group.append(s("line", { class: "band", x1: x(p.x), x2: x(p.x), y1: y(p.low), y2: y(p.high), stroke: color, "stroke-width": 1.5, opacity: 0.55 }));
  }
  const every = Math.max(...options.series.map((other) => other.points.length)) > 25 ? 5 : 1;
  one.points.forEach((p, i) => group.append(
    s("path", { class: "mark", d: shapePath(shape, x(p.x), y(p.y), 3.6), fill: color, opacity: i % every ? 0 : 1 }),
    s("circle", { cx: x(p.x), cy: y(p.y), r: 10, fill: "transparent", tip: p.tip })));
  return group;
}

// rows: [{head, memory, text, beta, kappa, delta: {value, low, high, text}, tip}]
function lossBars(rows, label, limits) {
  return chartBox((wide) => {
    const left = 52, right = 46, line = 21, name = 16;
    const [x0, x1] = limits, x = scale(x0, x1, left, wide - right);
    const tops = [], heads = rows.map((r) => (r.head ? senseLines(r.head, Math.floor((wide - 8) / 7)) : []));
    let at = 40;
    rows.forEach((r, i) => { at += name * heads[i].length + (i && r.head ? 8 : 0); tops.push(at); at += line; });
    const high = at + 6, out = svgOf(wide, high, label);
    out.append(axis((left + wide - right) / 2, 11, "nats per audited decision", "middle"));
    for (const { v, text } of ticks(x0, x1, wide > 480 ? 7 : 4)) out.append(
      s("line", { class: v === 0 ? "zero" : "grid", x1: x(v), x2: x(v), y1: 34, y2: high }),
      s("text", { class: "tick x", x: x(v), y: 28, "text-anchor": "middle" }, text));
    rows.forEach((r, i) => {
      const y = tops[i];
      heads[i].forEach((text, n) => out.append(s("text", { class: "strong", x: 0, y: y - 5 - name * (heads[i].length - 1 - n), style: `fill:${look(r.memory).color}` }, text)));
      out.append(s("text", { class: "tick", x: left - 8, y: y + 12, "text-anchor": "end" }, r.text));
      const group = s("g", { tip: r.tip });
      group.append(s("rect", { x: left, y, width: wide - left - right, height: line - 3, fill: "transparent" }));
      for (const one of spans(r)) group.append(s("rect", { x: Math.min(x(one.from), x(one.to)), y: y + 1, width: Math.max(0.5, Math.abs(x(one.to) - x(one.from))), height: line - 8, fill: `var(--${one.name})`, rx: 1 }));
      const middle = y + 1 + (line - 8) / 2;
      if (r.delta.low !== null) group.append(s("line", { x1: x(r.delta.low), x2: x(r.delta.high), y1: middle, y2: middle, stroke: "var(--ink)", "stroke-width": 1 }));
      group.append(s("path", { d: shapePath("diamond", x(r.delta.value), middle, 3.2), fill: "var(--ink)", stroke: "var(--card)", "stroke-width": 1 }));
      out.append(group, s("text", { class: "tick strong", x: wide - right + 8, y: y + 12 }, r.delta.text.split(" ")[0]));
    });
    return out;
  });
}
const reach = (row) => [row.delta.value, row.delta.low, row.delta.high, ...spans(row).flatMap((one) => [one.from, one.to])];

// Positive parts stack to the right of zero, negative ones to the left.
function spans(row) {
  let up = 0, down = 0;
  return ["beta", "kappa"].map((name) => {
    const v = row[name], from = v >= 0 ? up : down;
    if (v >= 0) up += v; else down += v;
    return { name, from, to: from + v };
  });
}

// points: [{memory, x, y, tip}]
function scatter(points, label, won) {
  return chartBox((wide) => {
    const m = { l: 46, r: 14, t: 22, b: 40 }, high = 290;
    const [x0, x1] = extent(points.map((p) => p.x), true), x = scale(x0, x1, m.l + 6, wide - m.r), y = scale(0, 1, high - m.b, m.t);
    const out = svgOf(wide, high, label);
    for (const { v, text } of ticks(0, 100, 5)) out.append(
      s("line", { class: "grid", x1: m.l, x2: wide - m.r, y1: y(v / 100), y2: y(v / 100) }),
      s("text", { class: "tick y", x: m.l - 7, y: y(v / 100) + 4, "text-anchor": "end" }, text));
    for (const { v, text } of ticks(x0, x1, wide > 480 ? 6 : 4)) out.append(s("text", { class: "tick x", x: x(v), y: high - m.b + 18, "text-anchor": "middle" }, text),
      v === 0 ? s("line", { class: "zero", x1: x(0), x2: x(0), y1: m.t, y2: high - m.b }) : "");
    out.append(axis(4, 12, won), axis((m.l + wide - m.r) / 2, high - 4, "gap δ to the full history, nats", "middle"));
    for (const p of points) {
      const { color, shape } = look(p.memory);
      out.append(s("path", { class: "mark", d: shapePath(shape, x(p.x), y(p.y), 5), fill: color, opacity: 0.8, stroke: "var(--card)", tip: p.tip }));
    }
    return [out, key([...new Set(points.map((p) => p.memory))])];
  });
}

function dataTable(heads, rows) {
  const line = (tag, cells) => h("tr", {}, cells.map((one) => h(tag, { scope: tag === "th" ? "col" : null }, typeof one === "string" ? one.replaceAll("\u00a0", " ") : one))); // whole on a screen by its style; paper is narrow
  const table = h("table", {}, h("thead", {}, line("th", heads)), h("tbody", {}, rows.map((row) => line("td", row))));
  return h("details", { class: "data" }, h("summary", {}, "Show as a table"), hinted(h("div", {}, table), "Table"));
}

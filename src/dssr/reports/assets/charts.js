"use strict";
// Charts as plain SVG. Each draw function gets a host element and redraws when the host changes width.

function drawn(host, draw) {
  let last = 0;
  const paint = () => {
    const wide = Math.floor(host.clientWidth);
    if (!wide || wide === last) return;
    last = wide;
    host.replaceChildren(draw(wide));
  };
  new ResizeObserver(paint).observe(host);
  paint();
  return host;
}
const chartBox = (draw) => drawn(h("div", { class: "chart" }), draw);

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((one) => one >= rough);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) out.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  return out;
}
const tickText = (v) => minus(String(Math.round(v * 1000) / 1000));
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

// options: {series: [{memory, points: [{x, y, low, high, tip}]}], xs: [{x, text}], yName, xName, band, write, limits}
function lineChart(options) {
  return chartBox((wide) => {
    const roomy = wide > 330, longest = Math.max(0, ...options.series.map((one) => one.memory.length));
    const m = { l: 44, r: roomy ? 18 + 6.6 * Math.min(13, longest) : 14, t: 22, b: 40 }, high = 260;
    const all = options.series.flatMap((one) => one.points);
    const [y0, y1] = options.limits || extent(all.flatMap((p) => [p.y, p.low, p.high]), true);
    const xs = options.xs.map((one) => one.x);
    const x = scale(Math.min(...xs), Math.max(...xs), m.l + 12, wide - m.r - 8), y = scale(y0, y1, high - m.b, m.t);
    const out = s("svg", { viewBox: `0 0 ${wide} ${high}`, height: high, role: "img", "aria-label": options.label });
    for (const v of ticks(y0, y1, 5)) out.append(
      s("line", { class: v === 0 ? "zero" : "grid", x1: m.l, x2: wide - m.r, y1: y(v), y2: y(v) }),
      s("text", { class: "tick", x: m.l - 7, y: y(v) + 4, "text-anchor": "end" }, options.tick ? options.tick(v) : tickText(v)));
    const thin = Math.ceil(options.xs.length / ((wide - m.l - m.r) / 40));
    options.xs.forEach((one, i) => { if (i % thin === 0) out.append(s("text", { class: "tick", x: x(one.x), y: high - m.b + 18, "text-anchor": "middle" }, one.text)); });
    out.append(s("text", { x: (m.l + wide - m.r) / 2, y: high - 4, "text-anchor": "middle" }, options.xName), s("text", { x: 4, y: 12 }, options.yName));
    const groups = options.series.map((one) => {
      const group = seriesMarks(one, x, y, options);
      group.addEventListener("pointerenter", () => groups.forEach((g) => g.classList.toggle("fade", g !== group)));
      group.addEventListener("pointerleave", () => groups.forEach((g) => g.classList.remove("fade")));
      return group;
    });
    out.append(...groups);
    if (roomy) {
      const ends = options.series.filter((one) => one.points.length).map((one) => {
        const last = one.points[one.points.length - 1];
        return { memory: one.memory, y: y(last.y) };
      });
      for (const one of spread(ends, 14, m.t, high - m.b)) out.append(
        s("text", { x: wide - m.r + 8, y: one.at + 4, style: `fill:${look(one.memory).color};font-weight:600` }, clip(one.memory, 13)));
    }
    return out;
  });
}
const clip = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

function seriesMarks(one, x, y, options) {
  const { color, shape } = look(one.memory), group = s("g", { class: "series" });
  const points = one.points;
  const bounded = points.filter((p) => p.low !== null && p.low !== undefined);
  if (options.band && bounded.length > 1) {
    const upper = bounded.map((p) => `${x(p.x)},${y(p.high)}`), lower = bounded.map((p) => `${x(p.x)},${y(p.low)}`).reverse();
    group.append(s("polygon", { points: [...upper, ...lower].join(" "), fill: color, opacity: 0.09 }));
  } else if (options.band && bounded.length) {
    const [p] = bounded;
    group.append(s("line", { x1: x(p.x), x2: x(p.x), y1: y(p.low), y2: y(p.high), stroke: color, "stroke-width": 1.5, opacity: 0.55 }));
  }
  if (points.length > 1) group.append(s("path", { d: `M${points.map((p) => `${x(p.x)},${y(p.y)}`).join("L")}`, fill: "none", stroke: color, "stroke-width": 2, "stroke-linejoin": "round" }));
  const every = Math.max(...options.series.map((other) => other.points.length)) > 25 ? 5 : 1;
  points.forEach((p, i) => {
    const visible = i % every === 0;
    group.append(s("path", { class: "mark", d: shapePath(shape, x(p.x), y(p.y), 3.6), fill: color, opacity: visible ? 1 : 0 }),
      s("circle", { cx: x(p.x), cy: y(p.y), r: 10, fill: "transparent", tip: p.tip }));
  });
  return group;
}

// rows: [{head, memory, text, beta, kappa, delta: [v, low, high], tip}]
function lossBars(rows, label, limits) {
  return chartBox((wide) => {
    const left = wide > 480 ? 150 : 104, right = 54, line = 21;
    const [x0, x1] = limits, x = scale(x0, x1, left, wide - right);
    const tops = [];
    let at = 26;
    for (const r of rows) { if (r.head) at += tops.length ? 10 : 0; tops.push(at); at += line; }
    const high = at + 8;
    const out = s("svg", { viewBox: `0 0 ${wide} ${high}`, height: high, role: "img", "aria-label": label });
    for (const v of ticks(x0, x1, wide > 480 ? 7 : 4)) out.append(
      s("line", { class: v === 0 ? "zero" : "grid", x1: x(v), x2: x(v), y1: 18, y2: high }),
      s("text", { class: "tick", x: x(v), y: 11, "text-anchor": "middle" }, tickText(v)));
    rows.forEach((r, i) => {
      const y = tops[i];
      if (r.head) out.append(s("text", { class: "strong", x: 0, y: y + 12, style: `fill:${look(r.memory).color}` }, clip(r.head, wide > 480 ? 13 : 9)));
      out.append(s("text", { class: "tick", x: left - 8, y: y + 12, "text-anchor": "end" }, r.text));
      const group = s("g", { tip: r.tip });
      group.append(s("rect", { x: left, y, width: wide - left - right, height: line - 3, fill: "transparent" }));
      for (const one of spans(r)) group.append(s("rect", { x: Math.min(x(one.from), x(one.to)), y: y + 1, width: Math.max(0.5, Math.abs(x(one.to) - x(one.from))), height: line - 8, fill: `var(--${one.name})`, rx: 1 }));
      const middle = y + 1 + (line - 8) / 2;
      if (r.delta[1] !== null) group.append(s("line", { x1: x(r.delta[1]), x2: x(r.delta[2]), y1: middle, y2: middle, stroke: "var(--ink)", "stroke-width": 1 }));
      group.append(s("path", { d: shapePath("diamond", x(r.delta[0]), middle, 3.2), fill: "var(--ink)", stroke: "var(--card)", "stroke-width": 1 }));
      out.append(group, s("text", { class: "tick strong", x: wide - right + 8, y: y + 12 }, nats(r.delta[0])));
    });
    return out;
  });
}
const reach = (row) => [...row.delta.slice(0, 3), ...spans(row).flatMap((one) => [one.from, one.to])];

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
function scatter(points, label) {
  return chartBox((wide) => {
    const m = { l: 46, r: 14, t: 22, b: 40 }, high = 290;
    const [x0, x1] = extent(points.map((p) => p.x), true), x = scale(x0, x1, m.l + 6, wide - m.r), y = scale(0, 1, high - m.b, m.t);
    const out = s("svg", { viewBox: `0 0 ${wide} ${high}`, height: high, role: "img", "aria-label": label });
    for (const v of [0, 0.25, 0.5, 0.75, 1]) out.append(
      s("line", { class: "grid", x1: m.l, x2: wide - m.r, y1: y(v), y2: y(v) }),
      s("text", { class: "tick", x: m.l - 7, y: y(v) + 4, "text-anchor": "end" }, `${100 * v}`));
    for (const v of ticks(x0, x1, wide > 480 ? 6 : 4)) out.append(s("text", { class: "tick", x: x(v), y: high - m.b + 18, "text-anchor": "middle" }, tickText(v)),
      v === 0 ? s("line", { class: "zero", x1: x(0), x2: x(0), y1: m.t, y2: high - m.b }) : "");
    out.append(s("text", { x: 4, y: 12 }, "games won, %"), s("text", { x: (m.l + wide - m.r) / 2, y: high - 4, "text-anchor": "middle" }, "sufficiency gap δ, nats"));
    for (const p of points) {
      const { color, shape } = look(p.memory);
      out.append(s("path", { d: shapePath(shape, x(p.x), y(p.y), 5), fill: color, opacity: 0.8, stroke: "var(--card)", tip: p.tip, tabindex: 0, "aria-label": p.tip }));
    }
    return out;
  });
}

function dataTable(heads, rows) {
  return h("details", { class: "data" }, h("summary", {}, "Show as a table"),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((one) => h("td", {}, one))))))));
}

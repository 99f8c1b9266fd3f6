"use strict";
// Small helpers. Everything that comes from a run is put in as text, never as markup.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attrs, kids) {
  for (const [name, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "tip") tooltip(node, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const kid of kids.flat(3)) {
    if (kid === null || kid === undefined || kid === false) continue;
    node.append(kid instanceof Node ? kid : String(kid));
  }
  return node;
}
const h = (tag, attrs, ...kids) => fill(document.createElement(tag), attrs, kids);
const s = (tag, attrs, ...kids) => fill(document.createElementNS(SVG, tag), attrs, kids);

// ---- numbers. Estimates come with their text, written once for terminal, tables and page; only what belongs to a
// single decision or to an axis is written here.

const minus = (text) => String(text).replace(/-/g, "−");
const nats = (v) => (v === null || v === undefined ? "–" : minus(v.toFixed(2)).replace(/^−0\.00$/, "0.00"));
const percent = (v) => (v === null || v === undefined ? "–" : `${(100 * v).toFixed(v === 1 || v === 0 ? 0 : 1)}\u00a0%`);
const SHARES = ["success", "coverage"];
const told = (e, unit) => (e ? `${e.text}${unit ? `\u00a0${unit}` : ""}` : "–"); // its text comes typeset
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

// ---- tooltip: by mouse, by touch, and by the arrow keys inside a chart

function tooltip(node, text) {
  node.tipText = () => (typeof text === "function" ? text() : text);
  node.setAttribute("data-tip", "");
  const hide = () => $("tip").classList.remove("on");
  node.addEventListener("pointermove", (e) => tip(node, e.clientX, e.clientY));
  node.addEventListener("click", (e) => tip(node, e.clientX, e.clientY));
  node.addEventListener("pointerleave", hide);
  node.addEventListener("focus", () => tipAt(node));
  node.addEventListener("blur", hide);
}
function tip(node, x, y) {
  const box = $("tip");
  box.textContent = node.tipText();
  const wide = box.offsetWidth, high = box.offsetHeight;
  box.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - wide - 8))}px`;
  box.style.top = `${y + 18 + high > innerHeight ? y - high - 12 : y + 18}px`;
  box.classList.add("on");
}
function tipAt(node) { const r = node.getBoundingClientRect(); tip(node, r.right, r.top); }

// One stop of the tab key per chart; inside it the arrow keys go from mark to mark, and each says its value.
function reachable(svg) {
  let at = -1;
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const marks = [...svg.querySelectorAll("[data-tip]")];
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: marks.length - 1 }[event.key];
    if (event.key === "Enter" && marks[at]) marks[at].dispatchEvent(new MouseEvent("click", { bubbles: true }));
    if (to === undefined || !marks.length) return;
    event.preventDefault();
    event.stopPropagation();
    at = Math.max(0, Math.min(marks.length - 1, to));
    tipAt(marks[at]);
  });
  svg.addEventListener("blur", () => $("tip").classList.remove("on"));
  return svg;
}

// A long text in a box of its own says that it goes on below.
function tall(node) {
  const box = h("div", { class: "hint" }, node), look = () => { box.dataset.down = node.scrollHeight - node.clientHeight - node.scrollTop > 2; };
  node.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(node);
  return box;
}

// A box that scrolls sideways says so at the edge where more is hidden, and can be scrolled with the keyboard.
function hinted(scroller, label) {
  const box = h("div", { class: "hint" });
  if (scroller.parentNode) scroller.replaceWith(box);
  box.append(scroller);
  scroller.classList.add("scroll");
  const look = () => {
    const hidden = scroller.scrollWidth - scroller.clientWidth;
    box.dataset.left = scroller.scrollLeft > 2;
    box.dataset.right = hidden - scroller.scrollLeft > 2;
    if (!label) return;
    if (hidden > 2) fill(scroller, { tabindex: 0, role: "region", "aria-label": `${label}, scrolls sideways` }, []);
    else for (const name of ["tabindex", "role", "aria-label"]) scroller.removeAttribute(name);
  };
  scroller.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  sizes.observe(scroller);
  for (const kid of scroller.children) sizes.observe(kid);
  new MutationObserver(look).observe(scroller, { childList: true, subtree: true });
  return box;
}

// ---- memories: a colour and a shape each, so that colour is never the only sign

const SHAPES = ["circle", "square", "diamond", "up", "down", "cross"];
const looks = new Map();
function look(memory) {
  const at = looks.get(memory) ?? 0;
  return { color: `var(--m${at % 10})`, shape: SHAPES[at % SHAPES.length] };
}
function shapePath(shape, x, y, r) {
  const k = r * 1.15;
  switch (shape) {
    case "square": return `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
    case "diamond": return `M${x},${y - 1.35 * r}L${x + 1.35 * r},${y}L${x},${y + 1.35 * r}L${x - 1.35 * r},${y}z`;
    case "up": return `M${x},${y - k}L${x + k},${y + k}L${x - k},${y + k}z`;
    case "down": return `M${x},${y + k}L${x + k},${y - k}L${x - k},${y - k}z`;
    case "cross": return `M${x - r},${y - r / 3}h${r * 0.67}v${-r * 0.67}h${r * 0.67}v${r * 0.67}h${r * 0.67}v${r * 0.67}h${-r * 0.67}v${r * 0.67}h${-r * 0.67}v${-r * 0.67}h${-r * 0.67}z`;
    default: return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`;
  }
}
function dot(memory) {
  const { color, shape } = look(memory);
  return s("svg", { class: "dot", viewBox: "0 0 12 12", "aria-hidden": "true" }, s("path", { d: shapePath(shape, 6, 6, 4.4), fill: color }));
}

// Names break where they make sense: after @ / : . _ - and before a capital letter, never inside a word.
const senseParts = (name) => name.match(/[@/:._-]*(?:[A-Z]+(?![a-z])|[A-Z]?[^@/:._\-A-Z]+|.)[@/:._-]*/gu) || [];
const breakable = (name) => senseParts(name).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));
function senseLines(name, wide) {
  const out = [""];
  for (const part of senseParts(name).flatMap((one) => one.match(new RegExp(`.{1,${Math.max(4, wide)}}`, "gu"))))
    if (out[out.length - 1].length + part.length <= wide || !out[out.length - 1]) out[out.length - 1] += part; else out.push(part);
  return out;
}
const named = (memory) => h("span", { class: "name" }, dot(memory), h("span", { class: "sense" }, breakable(memory)));

// ---- packed episode data: in this page, or in a script file beside it

const unpacked = new Map(), arriving = new Map();
function chunk(index) {
  if (!unpacked.has(index)) unpacked.set(index, packedText(index).then(unpack));
  return unpacked.get(index);
}
function packedText(index) {
  const here = $(`chunk-${index}`);
  if (here) return Promise.resolve(here.textContent.trim());
  return new Promise((resolve, reject) => {
    arriving.set(index, resolve);
    const script = h("script", { src: `episodes/${index}.js` });
    script.onerror = () => { unpacked.delete(index); script.remove(); reject(new Error(`episodes/${index}.js is not beside this page`)); };
    document.head.append(script);
  });
}
function episodesArrived(index, text) { arriving.get(index)(text); }
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// ---- differences between two states, by words

function difference(before, after) {
  const split = (text) => text.match(/\s+|[\p{L}\p{N}_'’-]+|[^\s]/gu) || [];
  const a = split(before), b = split(after);
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const middle = align(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return merge([["same", b.slice(0, start).join("")], ...middle, ["same", b.slice(b.length - end).join("")]]);
}
function align(a, b) {
  if (a.length * b.length > 1500000) return [["del", a.join("")], ["add", b.join("")]];
  const wide = b.length + 1, best = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      best[i * wide + j] = a[i] === b[j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
  const out = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push(["same", b[j]]); i++; j++; }
    else if (j >= b.length || (i < a.length && best[(i + 1) * wide + j] >= best[i * wide + j + 1])) out.push(["del", a[i++]]);
    else out.push(["add", b[j++]]);
  }
  return out;
}
function merge(parts) {
  // A blank between two changed words belongs to the change: it keeps highlights in one piece. Removed and
  // added words of one stretch are gathered, so that a reader sees "old new" and not a word salad.
  const out = [];
  let del = "", add = "";
  const flush = () => { if (del) out.push(["del", del]); if (add) out.push(["add", add]); del = add = ""; };
  parts.forEach(([kind, text], at) => {
    if (!text) return;
    const next = parts[at + 1];
    if (kind === "del") del += text;
    else if (kind === "add") add += text;
    else if (add && /^[ \t]+$/.test(text) && next && next[0] !== "same") { add += text; if (del) del += text; }
    else { flush(); if (out.length && out[out.length - 1][0] === "same") out[out.length - 1][1] += text; else out.push(["same", text]); }
  });
  flush();
  return out;
}

"use strict";
// The page of a whole study: theme, hints at the edges of wide tables, and where a number comes from.

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (name) => { document.documentElement.dataset.theme = name; $("theme").textContent = name === "dark" ? "Light" : "Dark"; };
  apply(dark.matches ? "dark" : "light");
  $("theme").addEventListener("click", () => apply(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
}
theme();
for (const node of document.querySelectorAll(".wide")) hinted(node, node.dataset.label);
for (const node of document.querySelectorAll(".bar .scroll")) hinted(node);
for (const row of document.querySelectorAll("tr[data-origin]")) for (const cell of row.querySelectorAll("td.num")) tooltip(cell, row.dataset.origin);
for (const cell of document.querySelectorAll("td[data-origin]")) tooltip(cell, cell.dataset.origin);
new ResizeObserver(([entry]) => document.documentElement.style.setProperty("--bar", `${Math.ceil(entry.target.offsetHeight)}px`)).observe(document.querySelector(".bar"));
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details:not([open])")) { one.open = true; one.dataset.print = ""; } });
addEventListener("afterprint", () => { for (const one of document.querySelectorAll("details[data-print]")) { one.open = false; delete one.dataset.print; } });
document.documentElement.dataset.ready = "yes";

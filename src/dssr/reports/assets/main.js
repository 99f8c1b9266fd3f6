"use strict";
// Draw everything at once but the episodes, which are unpacked when the reader comes near them.

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (name) => {
    document.documentElement.dataset.theme = name;
    $("theme").textContent = name === "dark" ? "Light" : "Dark";
  };
  apply(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => apply(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => apply(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
}

const PARTS = {
  grid: () => grid(),
  decomposition: () => decomposition(),
  filler: () => byFiller(),
  rewrites: () => binned("rewrites-body", D.rewrites, `since the ${D.words.task} was shown`, "rewrites"),
  lag: () => binned("lag-body", D.lags, "measured lag ℓ", "steps"),
  association: () => association(),
  survival: () => survival(),
};
function draw(name) {
  if ($(name).dataset.drawn) return null;
  $(name).dataset.drawn = "yes";
  if (D.missing[name]) return missing(name === "explorer" ? "facts" : `${name}-body`, D.missing[name]);
  return name === "explorer" ? explorer() : PARTS[name]();
}

// A link lands when everything above its target has its final height.
async function visit(name) {
  if ($("explorer")) await draw("explorer");
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  $(name).scrollIntoView();
  const head = $(name).querySelector("h2") || $(name);
  head.setAttribute("tabindex", "-1");
  head.focus({ preventScroll: true });
}
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest('a[href^="#"]');
  if (!link || !$(link.hash.slice(1))) return;
  event.preventDefault();
  history.pushState(null, "", link.hash);
  visit(link.hash.slice(1));
});

// Paper has no buttons: what they would show is laid open, and closed again afterwards.
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details:not([open])")) { one.open = true; one.dataset.print = ""; } });
addEventListener("afterprint", () => { for (const one of document.querySelectorAll("details[data-print]")) { one.open = false; delete one.dataset.print; } });

theme();
answers();
filters();
for (const node of document.querySelectorAll(".bar .scroll, #jumps")) hinted(node); // its links and buttons take the keyboard there
for (const node of document.querySelectorAll(".provenance")) hinted(node, "Where the numbers come from");
new ResizeObserver(([entry]) => document.documentElement.style.setProperty("--bar", `${Math.ceil(entry.target.offsetHeight)}px`)).observe(document.querySelector(".bar"));
for (const name of Object.keys(PARTS)) if ($(name)) draw(name);
if ($("explorer")) {
  const seen = new IntersectionObserver((entries) => { if (entries.some((one) => one.isIntersecting)) { seen.disconnect(); draw("explorer"); } }, { rootMargin: "500px" });
  seen.observe($("explorer"));
}
listeners.push(() => paintFacts());
if (location.hash.includes("left=") && $("explorer")) visit("explorer");
else if (location.hash && $(location.hash.slice(1))) visit(location.hash.slice(1));
document.documentElement.dataset.ready = "yes";

"use strict";
// Draw what is on the screen first and the rest when the reader comes near it.

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
  decomposition: () => (D.missing.audits ? missing("decomposition-body", D.missing.audits) : decomposition()),
  filler: () => (D.missing.audits ? missing("filler-body", D.missing.audits) : byFiller()),
  rewrites: () => (D.missing.audits ? missing("rewrites-body", D.missing.audits) : binned("rewrites-body", D.rewrites, "κ", `rewrites since the ${D.words.task} was shown`)),
  lag: () => (D.missing.lags ? missing("lag-body", D.missing.lags) : binned("lag-body", D.lags, "κ", "measured lag ℓ, steps")),
  association: () => (D.missing.audits ? missing("association-body", D.missing.audits) : association()),
  survival: () => (D.missing.steps ? missing("survival-body", D.missing.steps) : survival()),
  explorer: () => (D.missing.steps ? missing("facts", D.missing.steps) : explorer()),
};

theme();
answers();
filters();
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) {
    seen.unobserve(entry.target);
    PARTS[entry.target.id]();
    entry.target.dataset.drawn = "yes";
  }
}, { rootMargin: "500px" });
for (const name of Object.keys(PARTS)) seen.observe($(name));
listeners.push(() => { if (E.data) paintFacts(); });
if (location.hash.includes("game=")) $("explorer").scrollIntoView();
document.documentElement.dataset.ready = "yes";

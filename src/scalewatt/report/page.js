"use strict";
// Hide series of a figure, and print what is folded. Without this script all of the page is shown, and still.

// A button for each series of a figure hides it and shows it again.
function addLegend(figure) {
  const groups = Array.from(figure.querySelectorAll("[data-series]"));
  const names = new Set(groups.map((group) => group.dataset.series));
  if (names.size < 2) return;
  const legend = document.createElement("p");
  legend.className = "legend screen";
  legend.append("Series: ");
  for (const name of names) {
    const toggle = document.createElement("button");
    toggle.type = "button";
    toggle.textContent = name;
    toggle.setAttribute("aria-pressed", "true");
    toggle.addEventListener("click", () => {
      const isShown = toggle.getAttribute("aria-pressed") !== "true";
      toggle.setAttribute("aria-pressed", String(isShown));
      groups
        .filter((group) => group.dataset.series === name)
        .forEach((group) => group.style.setProperty("display", isShown ? "" : "none"));
    });
    legend.append(toggle, " ");
  }
  figure.querySelector("h3").after(legend);
}

document.querySelectorAll("figure").forEach(addLegend);
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("details:not(#specifications)").forEach((folded) => (folded.open = true));
});

"use strict";
// Sort a table by a click on a heading, hide series of a figure. Without this script all of the page is
// shown, and still.

const NUMBER = /^[-+]?\d[\d\u202f]*(\.\d+)?(e[-+]?\d+)?(?= |$)/;

// A cell's number, its text where it has none, or null where it is missing.
function valueOf(cell) {
  const text = cell.textContent.trim();
  const match = text.match(NUMBER);
  if (match) return Number(match[0].replaceAll("\u202f", ""));
  return text === "–" ? null : text;
}

// Numbers come before texts.
function compare(a, b) {
  const [isNumber, isOther] = [a, b].map((value) => typeof value === "number");
  if (isNumber !== isOther) return isOther - isNumber;
  return isNumber ? a - b : a.localeCompare(b, "en", { numeric: true });
}

// Missing values are last in both directions; rows that are alike stay in their order.
function sortBy(table, column, sign) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [row, valueOf(row.cells[column])]);
  rows.sort(([, a], [, b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * compare(a, b);
  });
  body.append(...rows.map(([row]) => row));
}

function button(text) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  return element;
}

function makeSortable(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const sorter = button(head.textContent);
    head.replaceChildren(sorter);
    sorter.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortBy(table, column, down ? -1 : 1);
    });
  });
}

// A button for each series of a figure hides it and shows it again.
function addLegend(figure) {
  const groups = Array.from(figure.querySelectorAll("[data-series]"));
  const names = new Set(groups.map((group) => group.dataset.series));
  if (names.size < 2) return;
  const legend = document.createElement("p");
  legend.className = "legend screen";
  legend.append("Series: ");
  for (const name of names) {
    const toggle = button(name);
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

// A link to a part that is folded away opens it.
function unfoldTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const folded = target.closest("details") || target.querySelector(":scope > details");
  if (folded) folded.open = true;
  target.scrollIntoView();
}

document.querySelectorAll(".grid table").forEach(makeSortable);
document.querySelectorAll("figure").forEach(addLegend);
window.addEventListener("hashchange", unfoldTarget);
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("details:not(#specifications)").forEach((folded) => (folded.open = true));
});
unfoldTarget();

"use strict";
// Sort a table by a click on a heading, filter its rows, hide series of a figure. Without this script all
// of the page is there, and still.

const NUMBER = /^[-+]?\d[\d\u202f]*(\.\d+)?(e[-+]?\d+)?(?= |$)/;
const ENOUGH_ROWS = 12;

// A cell's number, its text where it has none, or null where it is missing.
function valueOf(cell) {
  const text = cell.textContent.trim();
  const found = text.match(NUMBER);
  if (found) return Number(found[0].replaceAll("\u202f", ""));
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
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  return made;
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

function makeFilterable(table, bar) {
  const rows = Array.from(table.tBodies[0].rows);
  if (rows.length < ENOUGH_ROWS) return;
  const [label, input, status] = ["label", "input", "span"].map((tag) => document.createElement(tag));
  input.type = "search";
  status.setAttribute("role", "status");
  label.append("Show rows with ", input);
  bar.append(label, status);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, number) => {
      row.hidden = !words.every((word) => texts[number].includes(word));
    });
    const shown = rows.filter((row) => !row.hidden).length;
    status.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
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
      const own = groups.filter((group) => group.dataset.series === name);
      own.forEach((group) => group.style.setProperty("display", isShown ? "" : "none"));
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

for (const part of document.querySelectorAll(".grid")) {
  const table = part.querySelector("table");
  makeSortable(table);
  makeFilterable(table, part.querySelector(".bar"));
}
document.querySelectorAll("figure").forEach(addLegend);
window.addEventListener("hashchange", unfoldTarget);
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("details:not(#specifications)").forEach((folded) => (folded.open = true));
});
unfoldTarget();

"use strict";
// Click a column heading to sort a table; filter its rows by text. Without this script the tables are static.

// A cell's number, its text where it has none, or null where it is missing.
function valueOf(cell) {
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  const text = cell.textContent.trim();
  return text === "–" ? null : text;
}

// Numbers come before texts.
function compare(one, other) {
  const numbers = [one, other].map((value) => typeof value === "number");
  if (numbers[0] !== numbers[1]) return numbers[1] - numbers[0];
  return numbers[0] ? one - other : one.localeCompare(other, "en", { numeric: true });
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

function makeSortable(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortBy(table, column, down ? -1 : 1);
    });
  });
}

const ENOUGH_ROWS = 12;

function makeFilterable(table, bar) {
  const rows = Array.from(table.tBodies[0].rows);
  if (rows.length < ENOUGH_ROWS) return;
  const label = document.createElement("label");
  const input = document.createElement("input");
  const status = document.createElement("span");
  input.type = "search";
  input.autocomplete = "off";
  status.setAttribute("role", "status");
  label.append("Show rows with ", input);
  bar.append(label, status);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !words.every((word) => texts[place].includes(word));
      shown += !row.hidden;
    });
    status.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
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
// What is wider than its place says so.
markWide();
for (const image of document.images) image.addEventListener("load", markWide);
window.addEventListener("hashchange", unfoldTarget);
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details:not(.long)")) folded.open = true;
});
unfoldTarget();

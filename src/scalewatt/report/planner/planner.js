"use strict";
// Show one training's forecasts. All are computed by plan_page.py; here they are chosen, and multiplied by
// the site's factors.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MISSING = "–";
const FACTORS = ["pue", "price", "carbon", "deadline"];

function element(id) {
  return document.getElementById(id);
}

function made(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

// Three digits; an interval after its median.
function text(value) {
  return value === null ? MISSING : String(Number(value.toPrecision(value >= 1000 ? 4 : 3)));
}

function interval(ends) {
  if (ends === null) return MISSING;
  const [median, low, high] = ends.map(text);
  return `${median} (${low}–${high})`;
}

// Each number times a factor; null where either is not known.
function times(ends, factor) {
  return ends === null || factor === null ? null : ends.map((value) => value * factor);
}

// A factor of the form; null where it is empty or out of its bounds.
function factor(name) {
  const input = element(name);
  return input.value === "" || !input.validity.valid ? null : Number(input.value);
}

function fill(select, values) {
  const options = values.map(([value, words]) => new Option(words, value));
  select.replaceChildren(...options);
}

function training() {
  return DATA.trainings[Number(element("training").value)];
}

function cellsOf(row, factors) {
  const facility = times(row.kwh, factors.pue);
  const carbon = factors.carbon === null ? null : factors.carbon / 1000;
  return [
    row.gpus,
    row.nodes,
    interval(row.hours),
    text(row.gpus * row.hours[0]),
    interval(row.kwh),
    interval(facility),
    interval(times(facility, factors.price)),
    interval(times(facility, carbon)),
  ];
}

// The row of least energy among those that keep the deadline with 95 % probability.
function cheapestOf(rows, deadline) {
  const kept = rows.filter(
    (row) => row.kwh !== null && (deadline === null || row.hours[2] <= deadline),
  );
  return kept.sort((a, b) => a.kwh[0] - b.kwh[0])[0];
}

function show() {
  const { reason, rows } = training();
  const factors = Object.fromEntries(FACTORS.map((name) => [name, factor(name)]));
  const shown = rows.filter((row) => row.lbs === Number(element("lbs").value));
  const cheapest = cheapestOf(shown, factors.deadline);
  element("reason").hidden = reason === null;
  element("reason").textContent = reason;
  element("runs").tBodies[0].replaceChildren(
    ...shown.map((row) => {
      const line = document.createElement("tr");
      if (row === cheapest) line.className = "cheapest";
      const cells = [...cellsOf(row, factors), row === cheapest ? "cheapest" : ""];
      line.append(...cells.map((cell) => made("td", cell)));
      return line;
    }),
  );
  const warnings = shown.flatMap((row) => row.warnings.map((words) => `n = ${row.gpus}: ${words}.`));
  element("warnings").replaceChildren(...warnings.map((words) => made("li", words)));
}

function changeTraining() {
  const sizes = Array.from(new Set(training().rows.map((row) => row.lbs)));
  fill(element("lbs"), sizes.map((size) => [size, size]));
  show();
}

fill(element("training"), DATA.trainings.map(({ name }, place) => [place, name]));
for (const name of FACTORS) {
  element(name).value = DATA.begin[name] ?? "";
  element(name).addEventListener("input", show);
}
element("training").addEventListener("change", changeTraining);
element("lbs").addEventListener("change", show);
element("choice").addEventListener("submit", (event) => event.preventDefault());
element("choice").hidden = false;
changeTraining();

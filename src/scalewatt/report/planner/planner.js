"use strict";
// Show the points of one series. All forecasts are the plan's; here they are chosen, and multiplied by the
// site's factors.

const DATA = JSON.parse(document.getElementById("data").textContent);
const FACTORS = ["pue", "price", "carbon", "deadline"];
const element = (id) => document.getElementById(id);

function made(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

// The median in three digits, with its interval; a dash where it is not known.
function interval(ends) {
  if (ends === null) return "–";
  const digits = (value) => String(Number(value.toPrecision(value >= 1000 ? 4 : 3)));
  const [median, low, high] = ends.map(digits);
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

function cellsOf(row, { pue, price, carbon }) {
  const facility = times(row.energy_kwh, pue);
  const kg = carbon === null ? null : carbon / 1000;
  const quantities = [row.runtime_h, row.gpu_hours, row.energy_kwh, facility];
  quantities.push(times(facility, price), times(facility, kg));
  return [row.gpus, row.nodes, row.local_batch_size, ...quantities.map(interval)];
}

function show() {
  const { rows } = DATA.series[Number(element("series").value)];
  const factors = Object.fromEntries(FACTORS.map((name) => [name, factor(name)]));
  // The least energy of those that keep the deadline with 95 % probability.
  const inTime = ({ is_choice, energy_kwh, runtime_h }) =>
    is_choice && energy_kwh !== null && (factors.deadline === null || runtime_h[2] <= factors.deadline);
  const [cheapest] = rows.filter(inTime).sort((a, b) => a.energy_kwh[0] - b.energy_kwh[0]);
  const lines = rows.map((row) => {
    const line = document.createElement("tr");
    if (row === cheapest) line.className = "cheapest";
    const cells = [...cellsOf(row, factors), row === cheapest ? "cheapest" : ""];
    line.append(...cells.map((cell) => made("td", cell)));
    return line;
  });
  element("runs").tBodies[0].replaceChildren(...lines);
  const remarks = rows.flatMap((row) => row.remarks.map((words) => `n = ${row.gpus}: ${words}.`));
  element("remarks").replaceChildren(...remarks.map((words) => made("li", words)));
}

element("series").replaceChildren(...DATA.series.map(({ title }, index) => new Option(title, index)));
element("series").addEventListener("change", show);
for (const name of FACTORS) {
  element(name).value = DATA.begin[name] ?? "";
  element(name).addEventListener("input", show);
}
element("choice").addEventListener("submit", (event) => event.preventDefault());
element("choice").hidden = false;
show();

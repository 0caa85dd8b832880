"use strict";
// The form, and what is shown of its choice. All numbers come from forecast.js.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MISSING = "–";
const INTERVAL = `${Math.round(100 * (DATA.rules.interval[1] - DATA.rules.interval[0]))}\u00a0%`;
const FORM_NUMBERS = [
  ...["gpus", "local_batch_size", "epochs", "samples"],
  ...["deadline_h", "budget_kwh", "pue", "price_per_kwh", "carbon_g_per_kwh"],
];

const NAMES = ["model", "device", "settings"];

function element(id) {
  return document.getElementById(id);
}

function made(tag, text, className = "") {
  const found = document.createElement(tag);
  found.textContent = text;
  if (className) found.className = className;
  return found;
}

// --- numbers in few characters, as plan_numbers.py -----------------------------------------------

function short(value) {
  if (value === null || value === undefined) return MISSING;
  for (const [limit, factor, letter] of [[99999.5, 1, ""], [999500, 1e-3, "k"], [999.5e6, 1e-6, "M"]]) {
    if (Math.abs(value) >= limit) continue;
    if (!letter && (Number.isInteger(value) || Math.abs(value) >= 99.95)) return value.toFixed(0);
    const scaled = value * factor;
    return `${Number(scaled.toPrecision(Math.abs(scaled) >= 0.01 ? 3 : 1))}${letter}`;
  }
  return value.toExponential(0);
}

function interval(one) {
  return `${short(one.low)}–${short(one.high)}`;
}

function percent(share) {
  if (share === null) return MISSING;
  if (share > 0.995 && share < 1) return "> 99 %";
  if (share < 0.005 && share > 0) return "< 1 %";
  return `${Math.round(100 * share)} %`;
}

// --- what is chosen ------------------------------------------------------------------------------

function options(select, values, chosen) {
  select.replaceChildren(
    ...values.map(([value, text]) => {
      const option = made("option", text);
      option.value = value;
      option.selected = String(value) === String(chosen);
      return option;
    }),
  );
}

function distinct(values) {
  return Array.from(new Set(values));
}

// Fill the three lists so that `training` is chosen in them.
function showTraining(training) {
  const own = DATA.trainings[training];
  const models = distinct(DATA.trainings.map((one) => one.model));
  options(element("model"), models.map((name) => [name, name]), own.model);
  const sameModel = DATA.trainings.filter((one) => one.model === own.model);
  const devices = distinct(sameModel.map((one) => one.device));
  options(element("device"), devices.map((name) => [name, name]), own.device);
  const settings = DATA.trainings
    .map((one, place) => [place, one])
    .filter(([, one]) => one.model === own.model && one.device === own.device)
    .map(([place, one]) => [place, one.reason === null ? one.settings : `${one.settings} – not calibrated`]);
  options(element("settings"), settings, training);
}

function chosenTraining() {
  return Number(element("settings").value);
}

// The training of a model that is nearest to what was chosen: same device if there is, else the first.
function trainingOf(model, device) {
  const places = DATA.trainings.map((one, place) => [place, one]);
  const ofModel = places.filter(([, one]) => one.model === model);
  return (ofModel.find(([, one]) => one.device === device) ?? ofModel[0])[0];
}

function showNumbers(values) {
  for (const [name, value] of Object.entries(values)) element(name).value = value ?? "";
}

function startOf(training) {
  const { gpus, local_batch_size, epochs, samples } = DATA.trainings[training];
  return { gpus, local_batch_size, epochs, samples };
}

// A number of the form; null where it is empty or none.
function numberOf(name) {
  const text = element(name).value.trim();
  const value = text === "" ? NaN : Number(text);
  return Number.isFinite(value) ? value : null;
}

function choiceOf() {
  const numbers = Object.fromEntries(FORM_NUMBERS.map((name) => [name, numberOf(name)]));
  return { training: chosenTraining(), ...numbers };
}

// A limit or a factor that cannot be: its words; null if all can.
function wrongNumber() {
  for (const name of FORM_NUMBERS) {
    const input = element(name);
    const label = input.labels[0].firstChild.textContent.trim();
    if (input.validity.badInput) return [input, `${label}: is no number`];
    const value = numberOf(name);
    if (value === null) continue;
    if (name === "pue" && value < 1) return [input, `${label}: ${value}; expected a number from 1`];
    const isLimit = name.match(/deadline|budget/);
    if (isLimit && value <= 0) return [input, `${label}: ${value}; expected a number above 0`];
    if (value < 0) return [input, `${label}: ${value}; expected no negative number`];
  }
  return null;
}

// --- what is shown -------------------------------------------------------------------------------

const FACTS = [
  ["runtime_h", "time", "h"],
  ["gpu_hours", "GPU hours", "GPUh"],
  ["energy_kwh", "energy (predicted)", "kWh"],
  ["gpu_energy_kwh", "energy of GPUs", "kWh"],
  ["cpu_energy_kwh", "energy of CPUs", "kWh"],
  ["ram_energy_kwh", "energy of memory", "kWh"],
  ["facility_energy_kwh", "energy with PUE", "kWh"],
  ["cost", "cost", DATA.currency],
  ["carbon_kg", "CO₂e", "kg"],
];
const ALWAYS = new Set(["energy_kwh", "facility_energy_kwh", "cost", "carbon_kg"]);

function showFacts(found) {
  const shown = FACTS.filter(([name]) => ALWAYS.has(name) || found.estimates[name]);
  element("facts").replaceChildren(
    ...shown.map(([name, words, unit]) => {
      const one = found.estimates[name];
      const part = document.createElement("div");
      part.dataset.of = name;
      part.append(made("dt", words), made("dd", one ? `${short(one.median)} ${unit}`.trim() : MISSING));
      if (one) part.append(made("dd", `${`${interval(one)} ${unit}`.trim()}, nominal ${INTERVAL}`, "note"));
      return part;
    }),
  );
}

function showLimits(found, choice) {
  const lines = [];
  if (found.within_deadline !== null) {
    lines.push(`Ends within ${choice.deadline_h} h with ${percent(found.within_deadline)} probability.`);
  }
  if (choice.budget_kwh !== null) {
    lines.push(
      found.within_budget === null
        ? "Whether the energy budget is enough is not known: no energy is."
        : `Stays within ${choice.budget_kwh} kWh with ${percent(found.within_budget)} probability.`,
    );
  }
  element("limits").replaceChildren(...lines.map((line) => made("li", line)));
}

function sentence(text) {
  const first = text.startsWith("n =") ? "n" : text[0].toUpperCase();
  return `${first}${text.slice(1)}.`;
}

function showWarnings(found, kind) {
  const lines = [...found.warnings, ...kind.notes].map(sentence);
  element("warnings").replaceChildren(...lines.map((line) => made("li", line)));
}

function showRefusal(words) {
  const place = element("refusal");
  place.hidden = words === null;
  place.textContent = words === null ? "" : `No prediction: ${words}`;
  element("found").hidden = words !== null;
}

// --- other n -------------------------------------------------------------------------------------

// Numbers of GPUs to compare: doublings of one GPU, of a copy of the model and of a node that the device takes,
// up to four times the calibrated, and the chosen.
function otherGpus(training, choice) {
  const kind = DATA.kinds[training.kind];
  const largest = Math.max(...kind.points.map(([gpus]) => gpus));
  const most = Math.min(training.max_gpus ?? Infinity, DATA.rules.far * largest);
  const found = [choice.gpus];
  for (const first of [1, training.gpus_per_replica, training.gpus_per_node]) {
    for (let gpus = first; gpus <= most; gpus *= 2) found.push(gpus);
  }
  return distinct(found)
    .sort((one, other) => one - other)
    .filter((gpus) => refusalOf(training, { ...choice, gpus }) === null);
}

function columnsOf(choice) {
  return [
    ["time (h)", ({ estimates: e }) => `${short(e.runtime_h.median)} (${interval(e.runtime_h)})`],
    ["energy (kWh)", ({ estimates: e }) => (e.energy_kwh ? `${short(e.energy_kwh.median)} (${interval(e.energy_kwh)})` : MISSING)],
    ["GPU hours", ({ estimates: e }) => short(e.gpu_hours.median)],
    ...(choice.pue !== null && choice.price_per_kwh !== null
      ? [[`cost (${DATA.currency})`.replace(" ()", ""), ({ estimates: e }) => short(e.cost?.median)]]
      : []),
    ...(choice.pue !== null && choice.carbon_g_per_kwh !== null
      ? [["CO₂e (kg)", ({ estimates: e }) => short(e.carbon_kg?.median)]]
      : []),
    ...(choice.deadline_h !== null ? [["in time", (one) => percent(one.within_deadline)]] : []),
    ...(choice.budget_kwh !== null ? [["in budget", (one) => percent(one.within_budget)]] : []),
  ];
}

function head(text) {
  const found = made("th", text);
  found.scope = "col";
  return found;
}

function gpusButton(gpus, isChosen) {
  const button = made("button", gpus);
  button.type = "button";
  button.setAttribute("aria-label", `Choose ${gpus} GPUs`);
  if (isChosen) button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    element("gpus").value = gpus;
    update();
    element("others").querySelector('[aria-pressed="true"]')?.focus();
  });
  return button;
}

function showOthers(byGpus, choice) {
  const columns = columnsOf(choice);
  const table = element("others");
  element("choose").hidden = byGpus.length === 0;
  table.tHead.rows[0].replaceChildren(head("n"), ...columns.map(([words]) => head(words)));
  table.tBodies[0].replaceChildren(
    ...byGpus.map(([gpus, one]) => {
      const row = document.createElement("tr");
      const first = document.createElement("td");
      row.className = gpus === choice.gpus ? "chosen" : "";
      first.append(gpusButton(gpus, gpus === choice.gpus));
      row.append(first);
      if (one.reason !== null) {
        const why = made("td", one.reason, "long");
        why.colSpan = columns.length;
        row.append(why);
      } else {
        row.append(...columns.map(([, text]) => made("td", text(one))));
      }
      return row;
    }),
  );
}

function showRecommended(byGpus, choice) {
  const lines = [];
  const limits = [
    ["runtime_h", choice.deadline_h, "h", "the cheapest n"],
    ["energy_kwh", choice.budget_kwh, "kWh", "the fastest n"],
  ];
  for (const [limited, limit, unit, best] of limits) {
    if (limit === null) continue;
    const found = recommended(byGpus, limited, limit);
    const by = found.least === "gpu_hours" ? " (by GPU hours: no energy is known)" : "";
    const known = `${found.sure ?? "none"} with ${percent(DATA.rules.sure)} probability, ${found.likely} by the median`;
    const none = found.reason === null ? "none" : `not known, as ${found.reason}`;
    lines.push(`Within ${limit} ${unit}, ${best}${by}: ${found.likely === null ? none : known}.`);
  }
  element("recommended").replaceChildren(...lines.map((line) => made("li", line)));
}

// --- together ------------------------------------------------------------------------------------

function markInvalid(input) {
  for (const name of FORM_NUMBERS) element(name).removeAttribute("aria-invalid");
  if (input) input.setAttribute("aria-invalid", "true");
}

function update() {
  const choice = choiceOf();
  const training = DATA.trainings[choice.training];
  const wrong = wrongNumber();
  const found = wrong ? { reason: wrong[1] } : forecast(choice);
  markInvalid(wrong && wrong[0]);
  showRefusal(found.reason);
  const kind = DATA.kinds[training.kind];
  element("error-line").textContent = kind ? kind.error : "";
  element("id-line").textContent = found.id
    ? `Configuration ${found.id}, ${found.nodes} node${found.nodes === 1 ? "" : "s"}; energy of ${kind.scope ?? MISSING}.`
    : "";
  if (found.reason === null) {
    showFacts(found);
    showLimits(found, choice);
    showWarnings(found, kind);
  }
  const others = kind && !wrong ? otherGpus(training, choice) : [];
  const byGpus = others.map((gpus) => [gpus, forecast({ ...choice, gpus })]);
  showOthers(byGpus, choice);
  showRecommended(byGpus, choice);
  remember(choice);
  markWide();
}

// What the page begins with for a training.
function defaultsOf(training) {
  return {
    ...startOf(training),
    deadline_h: DATA.limits.deadline_h,
    budget_kwh: DATA.limits.energy_kwh,
    pue: DATA.site.pue,
    price_per_kwh: DATA.site.price,
    carbon_g_per_kwh: DATA.site.carbon,
  };
}

// The choice is kept in the address, so that a bookmark, or a page loaded again, has it: the training by its
// words, and only numbers that differ from the page's own, which may be others when it is written again.
function remember(choice) {
  const defaults = defaultsOf(choice.training);
  const training = DATA.trainings[choice.training];
  const given = [
    ...NAMES.map((name) => [name, training[name]]),
    ...FORM_NUMBERS.filter((name) => choice[name] !== defaults[name]).map((name) => [name, choice[name] ?? ""]),
  ];
  history.replaceState(null, "", `#${new URLSearchParams(given)}`);
}

function remembered() {
  const found = new URLSearchParams(location.hash.slice(1));
  const training = DATA.trainings.findIndex((one) => NAMES.every((name) => one[name] === found.get(name)));
  if (training < 0) return { training: 0, ...defaultsOf(0) };
  const given = FORM_NUMBERS.filter((name) => found.has(name)).map((name) => [name, found.get(name)]);
  return { training, ...defaultsOf(training), ...Object.fromEntries(given) };
}

function begin() {
  const { training, ...numbers } = remembered();
  showTraining(training);
  showNumbers(numbers);
  update();
}

function changeTraining(training) {
  showTraining(training);
  showNumbers(startOf(training));
  update();
}

element("model").addEventListener("change", (event) =>
  changeTraining(trainingOf(event.target.value, element("device").value)),
);
element("device").addEventListener("change", (event) =>
  changeTraining(trainingOf(element("model").value, event.target.value)),
);
element("settings").addEventListener("change", () => changeTraining(chosenTraining()));
element("choice").addEventListener("submit", (event) => event.preventDefault());
element("reset").addEventListener("click", () => {
  history.replaceState(null, "", "#");
  begin();
});
for (const name of FORM_NUMBERS) element(name).addEventListener("input", update);
element("planner").hidden = false;
begin();

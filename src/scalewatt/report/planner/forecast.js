"use strict";
// What scaling/model/predict.py and scaling/planning/plan.py compute, of one run that is chosen on the page.
// `DATA` is what planner_data.py wrote: the posterior samples of each kind of training, and the trainings.

const J_PER_KWH = 3.6e6;

// --- the load of a training ----------------------------------------------------------------------

// Machines and work of a choice, as cost_terms.load_of.
function loadOf(training, choice) {
  const replicas = Math.floor(choice.gpus / training.gpus_per_replica);
  const share = Math.floor(choice.samples / replicas);
  const updates = Math.ceil(share / choice.local_batch_size) * choice.epochs;
  const steps = training.gradient_accumulation_steps;
  return {
    gpus: choice.gpus,
    nodes: Math.ceil(choice.gpus / training.gpus_per_node),
    epochs: choice.epochs,
    samples: replicas * share * choice.epochs,
    updates,
    steps,
    passes: updates * steps * replicas,
    passSize: choice.local_batch_size / steps,
  };
}

const TIME_COLUMNS = {
  startup: () => 1,
  epoch: (load) => load.epochs,
  first_batch: (load) => load.epochs * load.passSize,
  straggler: (load) => load.epochs * Math.log2(load.gpus),
  sample: (load) => load.samples / load.gpus,
  update: (load) => load.updates * load.steps,
  input_excess: (load, knee) =>
    (load.samples / load.gpus / load.passSize) * Math.max(load.passSize, knee ?? 0),
  synchronisation: (load) => load.updates * Math.log2(load.gpus),
};

const ENERGY_COLUMNS = {
  node: (load, hours) => hours * load.nodes,
  gpu: (load, hours) => hours * load.gpus,
  sample: (load) => load.samples,
  pass: (load) => load.passes,
};

// --- posterior samples of one run ----------------------------------------------------------------

function dot(costs, columns) {
  let sum = 0;
  for (let term = 0; term < columns.length; term++) sum += costs[term] * columns[term];
  return sum;
}

// Doublings of n or LBS, the larger, between a load and the nearest calibrated point.
function doublingsApart(kind, load) {
  const apart = ([gpus, passSize]) =>
    Math.max(Math.abs(Math.log2(load.gpus / gpus)), Math.abs(Math.log2(load.passSize / passSize)));
  return Math.min(...kind.points.map(apart));
}

const DEVIATES = new Map();
const MOST_DEVIATES = 64; // configurations: those of some choices, each with its other n

// Standard normal deviates of a configuration's time and energy, the same as in Python.
function deviatesOf(seed, count) {
  const found = DEVIATES.get(seed) ?? takeDeviates(normalDeviates(seed), count);
  DEVIATES.delete(seed); // the last used comes last
  DEVIATES.set(seed, found);
  if (DEVIATES.size > MOST_DEVIATES) DEVIATES.delete(DEVIATES.keys().next().value);
  return found;
}

// Samples of time in s, and of the energy in J by device kind, of one run of a configuration.
function samplesOf(kind, load, id) {
  const { deviations, seed, unseen, near, least_factor: least } = DATA.rules;
  const draws = kind.time.draws.length;
  const count = deviations * draws;
  const own = deviatesOf(seed + crc32(id), 2 * count);
  const common = deviatesOf(crc32(kind.name), count);
  const beyond = Math.max(0, doublingsApart(kind, load) - near);
  const columns = kind.time.terms.map((name) => TIME_COLUMNS[name](load, kind.time.knee));
  const runtime = new Float64Array(count);
  const energy = Object.fromEntries(
    Object.keys(kind.energy).map((name) => [name, new Float64Array(count)]),
  );
  for (let place = 0; place < count; place++) {
    const draw = Math.floor(place / deviations);
    const costs = kind.time.draws[draw]; // the last number of a draw is its spread
    const factor = Math.max(least, 1 + costs[columns.length] * own[place]);
    runtime[place] = dot(costs, columns) * factor * Math.exp(unseen * common[place] * beyond);
    const hours = runtime[place] / 3600;
    const ofEnergy = kind.energy_terms.map((name) => ENERGY_COLUMNS[name](load, hours));
    for (const [name, all] of Object.entries(kind.energy)) {
      const spread = all[draw][ofEnergy.length];
      energy[name][place] =
        dot(all[draw], ofEnergy) * Math.max(least, 1 + spread * own[count + place]);
    }
  }
  return { runtime, energy };
}

// What a run takes, in the units of the table `plan`; carbon and cost need a PUE, as there.
function amountsOf(samples, load, choice) {
  const found = { runtime_h: samples.runtime.map((s) => s / 3600) };
  found.gpu_hours = found.runtime_h.map((h) => h * load.gpus);
  const kinds = Object.entries(samples.energy);
  if (kinds.length === 0) return found;
  found.energy_kwh = samples.runtime.map((_, place) =>
    kinds.reduce((sum, [, joules]) => sum + joules[place] / J_PER_KWH, 0),
  );
  for (const [name, joules] of kinds) {
    if (name !== DATA.rules.total) found[`${name}_energy_kwh`] = joules.map((j) => j / J_PER_KWH);
  }
  if (choice.pue === null) return found;
  found.facility_energy_kwh = found.energy_kwh.map((kwh) => kwh * choice.pue);
  if (choice.carbon_g_per_kwh !== null) {
    found.carbon_kg = found.facility_energy_kwh.map((kwh) => kwh * (choice.carbon_g_per_kwh / 1000));
  }
  if (choice.price_per_kwh !== null) {
    found.cost = found.facility_energy_kwh.map((kwh) => kwh * choice.price_per_kwh);
  }
  return found;
}

// A quantile of sorted samples, between two of them in proportion, as numpy.quantile.
function quantile(sorted, share) {
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

function estimateOf(sorted) {
  const [low, high] = DATA.rules.interval;
  return { median: quantile(sorted, 0.5), low: quantile(sorted, low), high: quantile(sorted, high) };
}

// --- what cannot be, and what is far from calibrated points --------------------------------------

// The configuration's id, by which its deviates are drawn: that of a campaign which has it.
function idOf(training, choice) {
  const digits = (value, count) => String(value).padStart(count, "0");
  const part = choice.samples === training.full_samples ? "full" : `s${digits(choice.samples, 7)}`;
  const epochs = choice.epochs === training.usual_epochs ? "" : `-epochs${choice.epochs}`;
  const [before, after] = training.tail;
  const own = [choice.gpus, choice.local_batch_size, choice.samples, choice.epochs].join("/");
  if (training.ids[own]) return training.ids[own];
  const batch = digits(choice.local_batch_size, 4);
  const where = `${training.model}-${training.device}-n${digits(choice.gpus, 3)}-lbs${batch}`;
  return `${where}-${part}${before}${epochs}${after}`;
}

// Why a choice is none, as a campaign with it would be refused; null if it is one.
function refusalOf(training, choice) {
  for (const [name, words] of Object.entries(WHOLE_NUMBERS)) {
    const value = choice[name];
    if (!Number.isSafeInteger(value) || value < 1) return `${words}: expected a whole number from 1`;
  }
  const { gpus, local_batch_size: batch, samples } = choice;
  const perNode = training.gpus_per_node;
  if (gpus > perNode && gpus % perNode) {
    return (
      `${gpus} does not fit nodes of ${perNode} GPUs (${training.device}); allowed: up to ${perNode}, ` +
      `or a multiple of ${perNode}`
    );
  }
  if (training.max_gpus !== null && gpus > training.max_gpus) {
    return `${gpus} is more than ${training.device} has for one job; allowed: at most ${training.max_gpus}`;
  }
  const largest = training.max_local_batch_size;
  if (largest !== null && batch > largest) {
    return (
      `a local batch size of ${batch} is above what ${training.device} is known to hold of ` +
      `${training.model}; allowed: at most ${largest}`
    );
  }
  if (gpus % training.gpus_per_replica) {
    return `${training.gpus_per_replica} GPUs share a copy of the model; allowed: a multiple of ${training.gpus_per_replica}`;
  }
  if (batch % training.gradient_accumulation_steps) {
    const passes = training.gradient_accumulation_steps;
    return `a batch has ${passes} passes of equal size; allowed: a multiple of ${passes}`;
  }
  if (samples < gpus) return `${samples} samples for ${gpus} GPUs; allowed: at least one per GPU`;
  return null;
}

const WHOLE_NUMBERS = {
  gpus: "GPUs",
  local_batch_size: "local batch size",
  samples: "samples",
  epochs: "epochs",
};

// Why the model cannot predict a load; null if it can.
function unknownOf(kind, load) {
  const sizes = new Set(kind.points.map(([, passSize]) => passSize));
  const [only] = sizes;
  if (sizes.size > 1 || load.passSize === only) return null;
  return (
    `${kind.name}: is calibrated on local batch size ${only} alone, so ${load.passSize} cannot be ` +
    "predicted; calibrate on runs of another one as well"
  );
}

function warningsOf(kind, load) {
  const { far, near } = DATA.rules;
  const largest = Math.max(...kind.points.map(([gpus]) => gpus));
  const found = [];
  if (load.gpus > far * largest) {
    found.push(
      `n = ${load.gpus} is more than ${far} times the largest calibrated (${largest}): extrapolated`,
    );
  }
  if (doublingsApart(kind, load) > near) {
    found.push(
      "n or the batch differs by more than one doubling from every calibrated point: " +
        "the interval of the time is wider",
    );
  }
  if (kind.assumed) found.push(kind.assumed);
  return found;
}

// --- a forecast ----------------------------------------------------------------------------------

function shareWithin(sorted, limit) {
  return sorted.filter((value) => value <= limit).length / sorted.length;
}

// The forecast of a choice: estimates of what it takes, or why there is none, with warnings.
function forecast(choice) {
  const training = DATA.trainings[choice.training];
  const refusal = refusalOf(training, choice) ?? training.reason;
  if (refusal !== null) return { reason: refusal, warnings: [] };
  const kind = DATA.kinds[training.kind];
  const load = loadOf(training, choice);
  const unknown = unknownOf(kind, load);
  if (unknown !== null) return { reason: unknown, warnings: [] };
  const id = idOf(training, choice);
  const amounts = amountsOf(samplesOf(kind, load, id), load, choice);
  const sorted = Object.fromEntries(
    Object.entries(amounts).map(([name, samples]) => [name, samples.sort()]),
  );
  const within = (name, limit) =>
    limit === null || !sorted[name] ? null : shareWithin(sorted[name], limit);
  return {
    id,
    nodes: load.nodes,
    reason: null,
    warnings: warningsOf(kind, load),
    estimates: Object.fromEntries(
      Object.entries(sorted).map(([name, samples]) => [name, estimateOf(samples)]),
    ),
    sure: {
      runtime_h: quantile(sorted.runtime_h, DATA.rules.sure),
      energy_kwh: sorted.energy_kwh ? quantile(sorted.energy_kwh, DATA.rules.sure) : null,
    },
    within_deadline: within("runtime_h", choice.deadline_h),
    within_budget: within("energy_kwh", choice.budget_kwh),
  };
}

// The n that `plan --deadline-h` and `--energy-kwh` recommend among forecasts by n: with 95 % probability, and
// by the median; null where none keeps the limit. For a deadline the least energy, or else GPU hours, else time.
function recommended(byGpus, limited, limit) {
  const known = byGpus.filter(([, one]) => one.reason === null);
  const withEnergy = known.filter(([, one]) => one.estimates.energy_kwh);
  const least =
    limited === "energy_kwh" ? "runtime_h" : withEnergy.length ? "energy_kwh" : "gpu_hours";
  const considered = least === "gpu_hours" ? known : withEnergy;
  const best = (takes) => {
    const kept = considered.filter(([, one]) => takes(one) <= limit);
    const order = ([, one], [, other]) => one.estimates[least].median - other.estimates[least].median;
    return kept.sort(order)[0]?.[0] ?? null;
  };
  const energy = "the energy of no n is known";
  return {
    least,
    reason: considered.length ? null : known.length ? energy : "no n can be predicted",
    sure: best((one) => one.sure[limited]),
    likely: best((one) => one.estimates[limited].median),
  };
}

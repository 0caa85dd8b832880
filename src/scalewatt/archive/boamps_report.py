"""One run as a BoAmps report: Boavizta's form for the energy of one task of machine learning.

What is not known is left out. The form has no field for where an energy comes from: the method says it,
and so do the quality and the description.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scalewatt.archive.boamps_options import BoampsOptions
from scalewatt.campaign.dataset_rules import STAND_INS
from scalewatt.campaign.operating_points import label_of
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.tables.repeat_statistics import is_combined
from scalewatt.results.tables.table_schema import OVER_TIME

COMMIT = "01f4c8eac5293f656790ac0ee5f52b87a789dbc5"
"""Of BoAmps: the report's schema that this follows."""
SPECIFICATION = f"https://github.com/Boavizta/BoAmps/blob/{COMMIT}/model/report_schema.json"
FAMILIES = {"resnet50": "image classification", "fourcastnet": "weather forecasting"}
"""The tasks of the models that scalewatt brings."""
_DATA_TYPES = {"imagenet": "image"}
"""By the dataset's format; the form has no word for what is not known, so all else is `other`."""
_METHODS = {
    "estimated": "estimated from utilisation and rated power",
    "mixed": "partly measured, partly estimated from utilisation and rated power",
    "simulated": "simulated with a scaling model, not measured",
}
_COMBINED = "one measured epoch's energy and time, times the epochs of another execution"
_QUALITIES = ((0.10, "high"), (0.25, "medium"))
"""The largest relative error of each, by the form; beyond the last: low."""
_BILLION = 1e9

Part = dict[str, Any]


@dataclass(frozen=True)
class MeasuredRun:
    """A finished run that has an energy, and what its cluster file says."""

    spec: RunSpec
    provenance: Mapping[str, Any]
    provenance_sha256: str
    row: Mapping[str, Any]
    """Of tables/runs.parquet."""
    origins: Mapping[str, str | None]
    """Origin of each device kind's energy."""
    idle_s: float | None = None
    """Length of the idle probes' windows; None without a probe of the device."""
    cpu_sockets: int | None = None
    """CPU sockets of a node, by the cluster file."""
    gpu_memory_gib: float | None = None
    carbon_g_per_kwh: float | None = None

    @property
    def simulated(self) -> bool:
        """Return True if it was simulated, not trained."""
        return bool(self.provenance.get("simulated")) or self.row["energy_origin"] == "simulated"

    @property
    def own_program(self) -> bool:
        """Return True if scalewatt's own training loop ran, so that its Python and torch are the run's."""
        others = ("registered", "command", "packages_of")
        return not (self.simulated or any(self.provenance.get(key) for key in others))

    @property
    def combined(self) -> bool:
        """Return True if its energy is computed from a measured epoch of another execution."""
        return is_combined(self.row.get("flags"))

    @property
    def intensity_g_per_kwh(self) -> float | None:
        """Return the carbon intensity along its power where that is known, else the constant."""
        over_time_kg, energy = self.row.get(OVER_TIME), self.row.get("facility_energy_kwh")
        return 1000 * over_time_kg / energy if over_time_kg and energy else self.carbon_g_per_kwh

    @property
    def epochs(self) -> int | None:
        """Return its epochs; None where the spec's 1 only stands for one that is not known."""
        by_convention = self.provenance.get("registered") and self.spec.epochs == 1
        return None if by_convention else self.spec.epochs

    @property
    def gpus(self) -> int:
        """Return the GPUs that it held; those of its spec where it is not recorded which."""
        held = (self.provenance.get("gpus") or {}).values()
        counts = [len(one) for one in held if one]
        return sum(counts) or self.spec.gpus

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """Return the kinds of its nodes, as its provenance describes them."""
        return [one for one in self.provenance.get("nodes") or () if isinstance(one, dict)]


def report_of(run: MeasuredRun, options: BoampsOptions, now: datetime) -> Part:
    """Return the report; energies in kWh, times in s, dates in UTC. InputError without a task's family."""
    return known(
        {
            "header": _header(run, options, now),
            "task": _task(run, options),
            "measures": [_measure(run)],
            "system": _system(run),
            "software": _software(run),
            "infrastructure": {
                "infraType": options.infrastructure,
                "components": _components(run),
            },
            "environment": _environment(run, options),
            "quality": quality_of(run.row),
        }
    )


def known(part: Mapping[str, Any]) -> Part:
    """Return a part of a report without what is null or empty."""
    return {key: value for key, value in part.items() if value not in (None, {}, [], "")}


def report_id(spec_sha256: str, provenance_sha256: str) -> str:
    """Return a UUID that is the same for the same run and provenance, whenever it is exported."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"scalewatt:{spec_sha256}:{provenance_sha256}"))


def quality_of(row: Mapping[str, Any]) -> str:
    """Return the form's word for the largest relative error that is known of a run's energy.

    It is that of estimates by their interval, of recordings that repeat others by what the energy
    would be without them, and of uncovered time. The sensors' own errors are not known. What is simulated, or
    an epoch's energy times another execution's epochs, is `low`: it is no measurement of the run.
    """
    energy = row["energy_kwh"]
    if row["energy_origin"] == "simulated" or is_combined(row.get("flags")) or not energy > 0:
        return "low"
    ends = [row.get(name) for name in ("energy_low_kwh", "energy_high_kwh")]
    others = [one for one in (*ends, row.get("distinct_energy_kwh")) if one is not None]
    if None in ends and row["energy_origin"] != "measured":
        return "low"
    uncovered = 1 - row["coverage"] if row.get("coverage") is not None else 0.0
    error = max([uncovered, *(abs(one - energy) / energy for one in others)])
    return next((word for most, word in _QUALITIES if error <= most), "low")


def _header(run: MeasuredRun, options: BoampsOptions, now: datetime) -> Part:
    publisher = {"name": options.publisher, "confidentialityLevel": options.confidentiality}
    return known(
        {
            "licensing": options.license,
            "formatVersionSpecificationUri": SPECIFICATION,
            "reportId": report_id(run.spec.sha256, run.provenance_sha256),
            "reportDatetime": _date(now),
            "reportStatus": "other" if run.simulated else options.status,
            "publisher": publisher if options.publisher else None,
        }
    )


def _date(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


# --- the task -------------------------------------------------------------------------------------


def _task(run: MeasuredRun, options: BoampsOptions) -> Part:
    model = run.spec.model
    family = options.task_family or FAMILIES.get(model)
    if family is None:
        raise InputError(
            f"{run.spec.name}: what task the model '{model}' is for is not known; allowed: "
            "--task-family TEXT, for example 'text classification'"
        )
    return known(
        {
            "taskStage": "finetuning" if run.spec.phase == "finetune" else "training",
            "taskFamily": family,
            "algorithms": [_algorithm(run)],
            "dataset": [_dataset(run)],
            "measuredAccuracy": _accuracy(run),
            "taskDescription": _description(run),
        }
    )


def _algorithm(run: MeasuredRun) -> Part:
    provenance = run.provenance
    packages = provenance.get("packages") or {}
    torch = packages.get("torch") if run.own_program else None
    parameters = provenance.get("parameters")
    return known(
        {
            "algorithmType": "neural network",
            "algorithmName": run.spec.model,
            "framework": "pytorch" if torch else None,
            "frameworkVersion": torch,
            "parametersNumber": parameters / _BILLION if parameters else None,
            "epochsNumber": run.epochs,
            "optimizer": provenance.get("optimizer"),
            "quantization": provenance.get("precision_used"),
        }
    )


def _dataset(run: MeasuredRun) -> Part:
    spec = run.spec
    size, samples = spec.settings.get("image_size"), spec.dataset_samples
    images = spec.dataset.get("format") == "imagenet" and size and samples
    return known(
        {
            "dataUsage": "input",
            "dataType": _DATA_TYPES.get(str(spec.dataset.get("format")), "other"),
            "dataQuantity": samples,
            "shape": f"({samples}, 3, {size}, {size})" if images else None,
        }
    )


def _accuracy(run: MeasuredRun) -> float | None:
    """Return the share of right answers at the end; None of other metrics, and of simulated runs."""
    metric = run.row["metric_last"]
    if run.simulated or metric is None or run.row["metric_name"] != "top1_error_percent":
        return None
    return float(1 - metric / 100)


def _description(run: MeasuredRun) -> str:
    spec, row = run.spec, run.row
    origin = row["energy_origin"]
    energy = "simulated" if run.simulated else origin
    sentences = [
        "Simulated: nothing was trained or measured." if run.simulated else "",
        f"{spec.name} of the campaign {row['campaign']}, protocol {spec.protocol}: {spec.gpus} "
        f"{'GPUs' if row['torch_device'] == 'cuda' else 'processes'}, nodes: {spec.nodes}, local batch: "
        f"{spec.local_batch_size}, global batch: {spec.global_batch_size}.",
        f"Asked for: {label_of(spec.operating_point)}." if spec.operating_point else "",
        "" if spec.dataset["format"] in STAND_INS else f"Dataset: {spec.dataset['name']}.",
        f"Energy: {energy}; of {row['energy_scope']}, without cooling and losses of the site (no PUE).",
        _interval(row),
        f"It is {_COMBINED}." if run.combined else "",
        f"spec.json: SHA-256 {spec.sha256}.",
    ]
    return " ".join(filter(None, sentences))


def _interval(row: Mapping[str, Any]) -> str:
    """Return where the true energy lies by what is estimated or not covered; else an empty text."""
    low, high = (row.get(name) for name in ("energy_low_kwh", "energy_high_kwh"))
    if low is None or high is None or f"{low:.6g}" == f"{high:.6g}":
        return ""
    what = "its estimates" if row["energy_origin"] in ORIGINS else "the time that is not covered"
    return f"By {what} the true energy is from {low:.6g} to {high:.6g} kWh."


# --- the energy -----------------------------------------------------------------------------------


def _measure(run: MeasuredRun) -> Part:
    row, perun = run.row, run.provenance.get("perun") or {}
    return known(
        {
            "measurementMethod": _method(run),
            "version": None if run.simulated else perun.get("version"),
            "cpuTrackingMode": _tracking(run, "cpu"),
            "gpuTrackingMode": _tracking(run, "gpu"),
            **_calibration(run),
            "powerConsumption": row["energy_kwh"],
            "measurementDuration": row["runtime_s"],
            "measurementDateTime": None if run.simulated else _begin(run),
        }
    )


def _method(run: MeasuredRun) -> str:
    if run.simulated:
        return _METHODS["simulated"]
    tool = "registered recordings" if run.provenance.get("registered") else "perun"
    said = _COMBINED if run.combined else _METHODS.get(run.row["energy_origin"])
    return f"{tool}, {said}" if said else tool


def _tracking(run: MeasuredRun, kind: str) -> str | None:
    """Return how a device kind was followed; None where it does not count, or no sensor's kind is known."""
    if kind not in str(run.row["energy_scope"]).split("+"):
        return None
    origin = run.origins.get(kind)
    if origin in _METHODS:
        return _METHODS[origin]
    if origin != "measured" or run.provenance.get("registered"):
        return None
    if kind == "gpu":
        return "nvml" if any(one.get("gpu_driver") for one in run.nodes) else None
    return "rapl" if {one.get("architecture") for one in run.nodes} == {"x86_64"} else None


def _calibration(run: MeasuredRun) -> Part:
    """Return what the run's devices use idle, in kWh, over as long as the idle probes were measured."""
    idle, runtime_s = run.row["idle_energy_kwh"], run.row["runtime_s"]
    if run.simulated or idle is None or not run.idle_s or not runtime_s:
        return {}
    return {
        "powerCalibrationMeasurement": idle * run.idle_s / runtime_s,
        "durationCalibrationMeasurement": run.idle_s,
    }


def _begin(run: MeasuredRun) -> str | None:
    starts = [one.get("started_s") for one in run.provenance.get("segments") or ()]
    recorded = [one for one in starts if isinstance(one, int | float)]
    return _date(datetime.fromtimestamp(min(recorded), UTC)) if recorded else None


# --- where ----------------------------------------------------------------------------------------


def _system(run: MeasuredRun) -> Part:
    kernels = {str(one["kernel"]).split(" ")[0].lower() for one in run.nodes if one.get("kernel")}
    names = {one.get("os") for one in run.nodes}
    if len(kernels) != 1:
        return {}
    return known({"os": kernels.pop(), "distribution": names.pop() if len(names) == 1 else None})


def _software(run: MeasuredRun) -> Part:
    if not run.own_program:
        return {}
    version = (run.provenance.get("packages") or {}).get("python")
    return {"language": "python", "version": version} if version else {}


def _components(run: MeasuredRun) -> list[Part]:
    """Return GPUs and CPUs, as far as their number is known; else the nodes, of which it always is."""
    found = [*_gpus(run), *_cpus(run)]
    if found:
        return found
    node = {"componentName": run.spec.device, "componentType": "node"}
    return [known({**node, "nbComponent": run.spec.nodes})]


def _gpus(run: MeasuredRun) -> list[Part]:
    """Return the GPUs that the run held, each wholly."""
    if run.row["torch_device"] != "cuda":
        return []
    memory = run.gpu_memory_gib
    return [
        known(
            {
                "componentName": run.row["device_name"],
                "componentType": "gpu",
                "nbComponent": run.gpus,
                "memorySize": int(memory) if memory and memory == int(memory) else None,
                "share": 1,
            }
        )
    ]


def _cpus(run: MeasuredRun) -> list[Part]:
    """Return the sockets of its nodes: those that were seen, else by the cluster file."""
    seen = [one for one in run.nodes if one.get("cpu_sockets")]
    if seen and len(seen) == len(run.nodes):
        return [
            known(
                {
                    "componentName": ", ".join(one.get("cpu_models") or ()),
                    "componentType": "cpu",
                    "nbComponent": one["cpu_sockets"] * len(one["hosts"]),
                }
            )
            for one in seen
        ]
    if run.cpu_sockets is None:
        return []
    return [{"componentType": "cpu", "nbComponent": run.cpu_sockets * run.spec.nodes}]


def _environment(run: MeasuredRun, options: BoampsOptions) -> Part:
    """Return where the electricity came from; the form wants a country for that."""
    if options.country is None:
        return {}
    return known(
        {
            "country": options.country,
            "location": options.location,
            "powerSourceCarbonIntensity": run.intensity_g_per_kwh,
        }
    )

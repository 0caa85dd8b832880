"""The paper's published numbers as rows of the table `configurations`."""

from __future__ import annotations

import csv
import math
from typing import Any

from scalewatt.campaign.model import Campaign
from scalewatt.claims.model import REFERENCE
from scalewatt.results.schema import CONFIGURATIONS, PARTS
from scalewatt.results.statistics import CONFIDENCE

_COPIED = {
    "runtime_h": "runtime_h",
    "gpu_hours": "gpu_hours",
    "energy_kwh": "energy_kwh",
    "gpu_energy_kwh": "gpu_energy_kwh",
    "cpu_energy_kwh": "cpu_energy_kwh",
    "metric_last": "metric_value",
}
_SPREADS = {"gpu_hours": "gpu_hours_popstd", "energy_kwh": "energy_popstd_kwh"}


def published_rows(campaign: Campaign) -> list[dict[str, Any]]:
    """One row per configuration of the paper's campaign that has published numbers."""
    with open(REFERENCE / "published_results.csv", encoding="utf-8", newline="") as handle:
        given = list(csv.DictReader(handle))
    rows: dict[str, dict[str, Any]] = {}
    for one in given:
        for id_, c in campaign.configurations.items():
            same = (c.model, c.phase, c.device, str(c.gpus), str(c.local_batch_size))
            if same != tuple(
                one[k] for k in ("model", "phase", "device", "gpus", "local_batch_size")
            ) or (str(c.dataset_samples), str(c.epochs)) != (one["dataset_samples"], one["epochs"]):
                continue
            row = rows.setdefault(id_, dict.fromkeys(CONFIGURATIONS.names))
            new: dict[str, Any] = {
                "n_repeats": int(one["repeats"]),
                "configuration": id_,
                "campaign": "published",
            }
            new |= {k: getattr(c, k) for k in ("model", "phase", "device", "gpus", "nodes")}
            new |= {
                k: getattr(c, k)
                for k in ("local_batch_size", "global_batch_size", "dataset_samples", "epochs")
            }
            new |= {"energy_origin": "published", "protocol": "paper"}
            new["energy_scope"] = "gpu+cpu" if c.device == "h100" else "gpu+cpu+ram"
            new |= _numbers(one)
            hours, energy = new.get("gpu_hours_mean"), new.get("energy_kwh_mean")
            if hours and c.dataset_samples:
                new["samples_per_gpuh_mean"] = c.dataset_samples * c.epochs / hours
                new["passes_per_gpuh_mean"] = (c.updates or 0) * c.gpus / hours
                new["p_gpuh_kw_mean"] = energy / hours
            row.update({k: v for k, v in new.items() if v is not None})
    return list(rows.values())


def _numbers(one: dict[str, str]) -> dict[str, Any]:
    n = int(one["repeats"])
    found: dict[str, Any] = {}
    for name, column in _COPIED.items():
        if not one[column]:
            continue
        mean = float(one[column])
        found[f"{name}_{PARTS[0]}"] = mean
        spread = one.get(_SPREADS.get(name, ""))
        if spread and n > 1:
            from scipy.special import stdtrit

            sd = float(spread) * math.sqrt(n / (n - 1))
            half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * sd / math.sqrt(n)
            found |= {f"{name}_sd": sd, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return found

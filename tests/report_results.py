"""Made results for tests of the report: tables of a campaign's runs. Nothing in them was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.table_definitions import runs_definition, table_definition
from scalewatt.claims.check_claims import TABLE as CLAIMS
from scalewatt.claims.reference_tables import NO_TEST, listed_claims
from scalewatt.figures.save_figure import write_captions
from scalewatt.results.build import figure_table
from scalewatt.results.cross_checks import CROSS_CHECKS
from scalewatt.results.figures.figure_schema import SCHEMAS
from scalewatt.results.tables.comparisons import comparisons_of
from scalewatt.results.tables.derived_quantities import with_model_energies
from scalewatt.results.tables.frames import frame_of, records, to_table, with_metadata
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.scaling import scaling_of
from scalewatt.results.tables.table_schema import COMPARISONS, CONFIGURATIONS, RUNS, SCALING

Row = dict[str, Any]
Change = Callable[[Row], Row]
ROOT = Path(__file__).resolve().parents[1]
_DRAWN = ("figure1", "figure2", "figure3", "figure4", "figure6", "figure7", "pareto", "table1")
"""What can be built from configurations alone."""
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="200"><text y="50">{}</text></svg>'
)


def paper() -> Campaign:
    """The paper's campaign, at its full size."""
    return load_campaign(ROOT / "campaigns/paper.yaml", load_cluster(ROOT / "config/horeka.yaml"))


def demo() -> Campaign:
    """The demo's campaign."""
    return load_campaign(ROOT / "campaigns/demo.yaml", load_cluster(ROOT / "config.yaml"))


def made_runs(campaign: Campaign, change: Change = dict) -> list[Row]:
    """A row of the table of runs for every run of the campaign; `change` alters each."""
    rows = [change(_run(campaign, campaign.configurations[id_], n)) for id_, n in campaign.runs()]
    return records(with_model_energies(frame_of([row for row in rows if row], RUNS)))


def _run(campaign: Campaign, configuration: Configuration, repeat: int) -> Row:
    on_cpu = configuration.device == "local"
    kwh_per_h = 0.05 if on_cpu else 0.4
    updates = configuration.updates or 0
    hours = (
        (1e-4 if on_cpu else 2e-5)
        * updates
        * configuration.local_batch_size**0.5
        * (1 + 0.01 * repeat)
    )
    energy = kwh_per_h * hours * configuration.gpus * (1 + 0.2 / configuration.gpus)
    resnet50 = configuration.model == "resnet50"
    scope = "cpu" if on_cpu else "gpu+cpu" + "+ram" * (configuration.device != "h100")
    shares = {"gpu": 0.0 if on_cpu else 0.75, "cpu": 1.0 if on_cpu else 0.2, "ram": 0.05}
    known = {kind: kind in scope.split("+") for kind in shares}
    return dict.fromkeys(RUNS.names) | {
        **{
            name: getattr(configuration, name)
            for name in RUNS.names
            if hasattr(configuration, name)
        },
        "campaign": campaign.name,
        "configuration": configuration.id,
        "device_name": f"made {configuration.device}",
        "precision": "torch_default",
        "energy_origin": "estimated" if on_cpu else "measured",
        "energy_scope": scope,
        "metric_name": "top1_error_percent" if resnet50 else "z500_rmse_m2_s2",
        "metric_goal": "min",
        "repeat": repeat,
        "updates": updates,
        "samples": updates * configuration.global_batch_size,
        "passes": updates * configuration.gpus,
        "runtime_s": 3600 * hours,
        "runtime_h": hours,
        "gpu_hours": hours * configuration.gpus,
        "metric_last": (20.0 if resnet50 else 90.0) + 0.1 * repeat,
        "metric_best": 19.0 if resnet50 else 89.0,
        "metric_persistence": None if resnet50 else 240.0,
        "samples_per_gpuh": 1e5,
        "passes_per_gpuh": 1e3,
        "energy_kwh": energy,
        **{f"{k}_energy_kwh": energy * shares[k] if known[k] else None for k in shares},
        "p_gpuh_kw": energy / (hours * configuration.gpus),
        "mean_gpu_power_w": 250.0 if known["gpu"] else None,
        "mean_cpu_socket_power_w": 120.0,
        "energy_per_sample_j": 3.6e6 * energy / (updates * configuration.global_batch_size),
        "energy_per_node_kwh": energy / configuration.nodes,
        "facility_energy_kwh": 1.1 * energy,
        "carbon_kg": 0.4 * energy,
        "recorded_energy_kwh": energy,
        "discarded_energy_kwh": 0.0,
        "coverage": 1.0,
        "segments": 1,
        "flags": "[]",
        "torch_device": "cpu" if on_cpu else "cuda",
        "initial_weights": None,
        "spec_sha256": f"{configuration.id}{repeat}".encode().hex()[:64].ljust(64, "0"),
    }


def write_results(folder: Path, campaign: Campaign, runs: Sequence[Row]) -> Path:
    """Write tables, drawings and provenance of these runs below `folder`, and return it."""
    made = frame_of(runs, RUNS)
    counting = made[made["excluded"].isna()]
    configurations = configurations_of(made)
    left_out = made.loc[made["excluded"].notna(), ["configuration", "repeat", "excluded"]]
    excluded = left_out.rename(columns={"excluded": "reason"}).to_dict("records")
    names = made[["configuration", "repeat"]].to_numpy().tolist()
    words = {"gpu_word": "processes" if any(r["torch_device"] == "cpu" for r in runs) else "GPUs"}
    whole = runs_definition(campaign, names, excluded)
    tables = {
        "runs": pa.Table.from_pylist(runs, RUNS),
        "configurations": to_table(configurations, CONFIGURATIONS),
        "scaling": to_table(scaling_of(whole["series"], configurations), SCALING),
        "comparisons": to_table(comparisons_of(made), COMPARISONS),
        "cross_checks": CROSS_CHECKS.empty_table(),
    }
    metadata = dict.fromkeys(tables, words)
    for figure in (name for name in _DRAWN if name in campaign.figures):
        of_figure = counting["configuration"].isin(campaign.figure_configurations(figure))
        drawn = counting.loc[of_figure, ["configuration", "repeat"]].to_numpy().tolist()
        definition = table_definition(campaign, figure, drawn, excluded)
        built = figure_table(definition, made)
        tables[figure] = to_table(built, SCHEMAS[figure])
        metadata[figure] = words | {
            "missing": definition["missing"],
            "excluded": definition["excluded"],
            "notes": [],
        }
    for kind in ("tables", "figures"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for name, built in tables.items():
        described = with_metadata(built, metadata[name])
        pq.write_table(described, folder / "tables" / f"{name}.parquet")
        if name.startswith("figure"):
            (folder / "figures" / f"{name}.svg").write_text(SVG.format(name))
            write_captions([f"The notes of {name} * 2."], folder / "figures" / name)
    for run in runs:
        write_provenance(folder, run)
    return folder


def write_provenance(folder: Path, run: Row, **more: Any) -> None:
    """Write the provenance of a run."""
    record = {
        "hostnames": [f"n{node}" for node in range(run["nodes"])],
        "packages": {"python": "3.11.7", "torch": "2.7.0", "mpich": None},
        "segments": [{"segment": 0, "started_s": 1.7e9, "ended_s": 1.7e9 + run["runtime_s"]}],
        "torch_device": run["torch_device"],
        "cudnn_benchmark": False,
    }
    path = folder / "runs" / run["configuration"] / str(run["repeat"]) / "provenance.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record | more))


def write_claims(folder: Path, verdicts: Iterable[Sequence[str]]) -> None:
    """Write a table of claims: ids with a verdict, or why nothing was tested, and a value where given."""
    of_id = {claim.id: claim for claim in listed_claims()}
    rows = [
        {"id": id_, "value": value[0] if value else "1"}
        | ({"verdict": NO_TEST, "reason": verdict} if " " in verdict else {"verdict": verdict})
        | {"expected": "1 (±5 %)", "detail": "It is 1."}
        | {"kind": of_id[id_].kind, "figure": of_id[id_].figure_table, "claim": of_id[id_].claim}
        for id_, verdict, *value in verdicts
    ]
    notes = ["Checked on campaign demo.", "3 claims; by results 1; by specs 1."]
    claims = with_metadata(pa.Table.from_pylist(rows, schema=CLAIMS), {"notes": notes})
    pq.write_table(claims, folder / "tables" / "claims.parquet")

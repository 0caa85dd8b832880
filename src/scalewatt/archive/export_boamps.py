"""`scalewatt boamps`: write one BoAmps report for each finished run that has an energy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scalewatt.archive.boamps_options import BoampsOptions
from scalewatt.archive.boamps_report import MeasuredRun, Part, report_of
from scalewatt.archive.export_archive import check_keys, check_private, private_words
from scalewatt.campaign.campaign_types import Campaign, Cluster, Device
from scalewatt.campaign.cluster import known_devices, load_cluster
from scalewatt.campaign.imported_campaign import with_imported
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_text
from scalewatt.energies.accounting.run_inputs import read_provenance
from scalewatt.energies.accounting.totals import EnergyTotals
from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.tables.read_table import RUN_KEY, read_checked
from scalewatt.results.tables.run_row import RunFiles, read_energy
from scalewatt.results.tables.table_schema import LATER, RUNS
from scalewatt.results.text.number_format import count, part_of

Row = dict[str, Any]


def write_reports(
    file: Path, cluster_file: Path, results: Path, out: Path, options: BoampsOptions
) -> list[str]:
    """Write `out`/<configuration>-<repeat>.json of a campaign's runs below `results`; return what to say.

    Runs that are excluded or have no energy are named and left out. InputError if the table of runs is
    missing, none has an energy, a model's task is not known, a report exists already, or one would
    reveal this machine.
    """
    cluster = load_cluster(cluster_file)
    campaign = load_campaign(file, cluster, to_run=False).whole
    folder = results / campaign.name
    rows = _rows(folder)
    left_out = [(row, why) for row in rows if (why := _reason(row))]
    counted = [row for row in rows if not _reason(row)]
    if not counted:
        raise InputError(f"{folder}: none of {count(len(rows), 'run')} has an energy to report")
    now = datetime.now(UTC)
    reports = {
        f"{row['configuration']}-{row['repeat']}.json": report_of(run, options, now)
        for row in counted
        for run in [_run(row, folder, campaign, cluster)]
    }
    _write(reports, out, cluster)
    return [
        *(f"not reported: {row['configuration']} {row['repeat']}: {why}" for row, why in left_out),
        *_simulated(reports, counted),
        *_carbon(campaign, cluster, options),
        f"{out}: {count(len(reports), 'report')}",
    ]


def _rows(folder: Path) -> list[Row]:
    path = folder / "tables" / "runs.parquet"
    if not path.exists():
        raise InputError(f"{path}: is missing; the target `tables` makes it")
    found: list[Row] = read_checked(path, RUNS, unique=RUN_KEY, optional=LATER).to_pylist()
    return found


def _reason(row: Row) -> str | None:
    """Return why a run is not reported; None if it is."""
    if row["excluded"] is not None:
        return f"excluded: {row['excluded']}"
    return "it has no energy" if row["energy_kwh"] is None else None


def _run(row: Row, folder: Path, campaign: Campaign, cluster: Cluster) -> MeasuredRun:
    files = RunFiles(folder, row["configuration"], row["repeat"])
    spec = read_spec(files.folder / "spec.json")
    path = files.folder / "provenance.json"
    totals = EnergyTotals(read_energy(files), with_staging=spec.protocol != "paper")
    device = _device(spec.device, campaign, cluster)
    carbon = _intensity(campaign, cluster)
    return MeasuredRun(
        spec,
        read_provenance(path),
        file_sha256(path),
        row,
        {kind: totals.origin_of(kind) for kind in DEVICE_KINDS},
        _idle_s(folder, spec.device),
        device.cpu.get("sockets") if device else None,
        device.gpu_memory_gib if device else None,
        (carbon or {}).get("value"),
    )


def _device(name: str, campaign: Campaign, cluster: Cluster) -> Device | None:
    """Return a device, of the cluster or the archive that the campaign came with; None if it is not known."""
    if campaign.registered:
        return None
    return known_devices(with_imported(campaign, cluster)).get(name)


def _intensity(campaign: Campaign, cluster: Cluster) -> Mapping[str, Any] | None:
    """Return the carbon intensity of where the campaign ran; None where the cluster is another."""
    if campaign.imported is not None:
        return campaign.imported.carbon_intensity
    own = campaign.devices() <= set(cluster.devices)
    return cluster.carbon_intensity if own else None


def _idle_s(folder: Path, device: str) -> float | None:
    """Return how long a device's idle probes were measured, in s; None if they differ or there are none."""
    path = folder / "tables" / "idle.parquet"
    if not path.exists():
        return None
    rows = read_checked(path, IDLE).to_pylist()
    found = {row["window_s"] for row in rows if row["device"] == device}
    return found.pop() if len(found) == 1 else None


def _write(reports: Mapping[str, Part], out: Path, cluster: Cluster) -> None:
    """Write the reports, unless one exists or one reveals this machine; then none is written."""
    texts = {
        name: json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        for name, report in reports.items()
    }
    contents = {name: text.encode() for name, text in texts.items()}
    check_keys(contents)
    check_private(contents, private_words(cluster))
    for name in texts:
        if (out / name).exists():
            raise InputError(f"{out / name}: exists already; allowed: another --out")
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(out / name, text)


def _simulated(reports: Mapping[str, Part], rows: list[Row]) -> list[str]:
    simulated = sum(row["energy_origin"] == "simulated" for row in rows)
    of = part_of(simulated, len(reports), "report")
    return [f"{of} of simulated runs, which were not measured"] if simulated else []


def _carbon(campaign: Campaign, cluster: Cluster, options: BoampsOptions) -> list[str]:
    """Return what is said where the cluster's carbon intensity has no place in the reports."""
    if _intensity(campaign, cluster) is None or options.country is not None:
        return []
    return ["not in them: the carbon intensity, as BoAmps wants the country with it; see --country"]

"""A few words for each flag of the energy tables (docs/tables.md explains them)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json
from scalewatt.recordings.series import DEVICE_KINDS, NODE, Flag

FLAG_WORDS = {
    "absent": "no sensor of this kind on any node, and nothing to estimate from: out of scope",
    "kind_missing": "a node lacks a sensor that others have",
    "unknown_power": "devices without power or utilisation",
    "coverage": "more than 5 % of a node's time in a segment without a known power",
    "gpu_count": "power of more or fewer GPUs than the run held",
    "second_sensor": "a second sensor of one device, not added",
    "gap": "a gap between samples",
    "duplicate_recording": "a recording that is the same as another to the last sample",
    "total_only": "a total without samples: no stages, no power over time",
    "damaged_lines": "unreadable lines of a recording",
    "inner_windows": "windows within others, not taken",
    "damaged_windows": "windows without a time or a length",
    "unknown_total": "a total that is no energy above 0",
    "one_gpu_assumed": "rows that name no GPU, taken as those of one",
    "no_time": "a table or a run without times",
    "cpu_origin_unknown": "a CPU's energy of unknown origin, taken as estimated",
    "gpus_in_sum": "GPUs whose energy is known in sum only",
    "pue_removed": "a data centre's overhead, taken out",
    "one_process": "one process's share of CPU and memory",
    "total_differs": "energies that do not add up to their stated sum",
    "torn_end": "a recording that ends within a line",
    "duplicate_rows": "samples that repeat the one before",
    "local_time_unsure": "local times of the hour that comes twice in autumn",
    "period_stated": "rows without times, as far apart as the user says",
    "time_zone_assumed": "local times without a zone, read as those of this machine",
    "recording_unreadable": "a recording that cannot be read",
    "missing_samples": "samples without a value",
    "low_power": "readings of a node's meter that no running node draws, counted",
    "zero_power": "0 W of a device that cannot draw it",
    "over_limit": "more power than the device can draw",
    "frozen": "a counter that stood still",
    "constant": "one value for long: a steady device or a frozen sensor",
    "clock_backwards": "samples not later than the one before",
    "counter_zero": "a counter read as 0",
    "counter_reset": "a step that the counter cannot have made",
    "counter_ambiguous": "a gap in which a counter may have wrapped more than once",
    "node_shared": "other runs measured on the node at the same time",
    "concurrent_runs_unknown": "other runs on the node could not have been detected",
    "throttled": "a GPU slowed down by heat or hardware",
    "power_capped": "a GPU at its power limit",
    "clock_not_held": "a clock other than the one asked for; left out of comparisons",
    "limit_not_held": "a power limit other than the one asked for; left out of comparisons",
    "operating_point_unknown": "a clock or limit that was asked for and not recorded",
    "cross_check_differs": "another source of the same energy differs by more than 3 %",
    "monitor_lost": "a segment's sampler was lost",
    "segments_overlap": "segments recorded the same time; it counts once",
    "utilisation_one_core": "utilisation of one core, taken for all",
    "utilisation_per_core": "utilisation of cores read one after another",
    "from_journal": "read from perun's journal",
    "journal_disagrees": "perun's file and its journal differ by more than 0.5 %",
    "perun_disagrees": "perun's samples and its own total of them differ by more than 1 %",
    "journal_damaged": "unreadable samples of a journal",
    "journal_unreadable": "a journal without a readable sample",
    "telemetry_damaged": "unreadable records of telemetry",
    "telemetry_unreadable": "an unreadable file of telemetry",
    "hdf5_unreadable": "perun's file cannot be read",
    "file_locked": "a file was locked by another program",
    "unreadable_sensor": "a sensor whose values are not what perun writes",
    "unknown_backend": "a sensor of no backend that perun ships",
    "missing_times": "samples without a time",
    "part_of_socket": "Grace: the CPU's power only, not the whole socket's",
    "length_mismatch": "values and times of a sensor differ in number",
    "several_runs": "a file holds several runs",
    "several_rounds": "perun's run holds several rounds",
    "failed_round": "perun recorded that the program failed",
    "clock_jump": "the wall clock moved during the recording",
    "clock_offset": "a node's clock differed from that of the others; corrected",
    "clock_from_execution_dt": "times count from perun's start, without a journal",
    "clock_unknown": "no time of the start: energy cannot be split by stage",
    "recording_short": "stages outside of the recording",
    "sensor_short": "a sensor without samples at the beginning or the end",
    "nodes_uneven": "nodes recorded for different times, without stages",
    "no_events": "a segment without stage events",
    "stages_overlap": "overlapping stage events",
    "stage_short": "a stage too short for its energy to be told from that of the stages around it",
    "missing_host": "a node that was not recorded",
    "extra_host": "more nodes recorded than the run has",
    "segment_unrecorded": "a segment without a readable sample",
    "segment_not_started": "a start that failed before its first update",
    "segment_killed": "a segment was killed, failed or refused its input",
    "gpus_shared": "several ranks shared a GPU: n counts processes",
    "contradicts_spec": "a script's reports contradict what was declared; left out of comparisons",
    "ranks_apart": "ranks that formed no world of torch.distributed; left out of comparisons",
    "world_unknown": "whether a script's ranks trained together is not known",
    "rank_ended": "a rank that ran on after the others, and was ended",
    "declared": "samples or epochs as declared: the script did not report them",
    "not_finite": "a reported metric or loss that is not a finite number",
    "cost_assumed": "simulated with a cost that was assumed",
    "extrapolated": "simulated far beyond what the scaling model was calibrated on",
    "carbon_unknown": "emitted at times that the file of carbon intensity does not cover",
    "probes_differ": "idle probes found unlike nodes",
    "not_idle": "busy during an idle probe",
    "no_power_sensors": "no sensor of power or energy",
}

LEFT_OUT = ("clock_not_held", "limit_not_held", "contradicts_spec", "ranks_apart")
"""Those that leave a run out: it is none of its configuration."""
NULL_ENERGY = (
    "coverage",
    "kind_missing",
    "unknown_power",
    "gpu_count",
    "node_shared",
    "missing_host",
    "segment_unrecorded",
    "hdf5_unreadable",
    "journal_unreadable",
    "unreadable_sensor",
    "recording_short",
    "sensor_short",
)
"""Those that can be why a run's energy is not stated."""


def read_flags(text: str | None, where: str = "tables/runs.parquet") -> list[Flag]:
    """Return the flags in a column `flags`; InputError, which begins with `where`, if it has none such."""
    try:
        found: list[Flag] = parse_json(text or "[]")
        if all(one["code"] for one in found):
            return found
    except (ValueError, TypeError, KeyError):
        pass
    raise InputError(
        f"{where}: column flags is {text!r}; expected a JSON list of objects with code, device and "
        "detail"
    )


def details_of(row: Mapping[str, Any], code: str, where: str = "tables/runs.parquet") -> list[str]:
    """Return the details of a row's flags of one code; InputError as of `read_flags`."""
    return [one["detail"] for one in read_flags(row["flags"], where) if one["code"] == code]


def left_out(flags: Iterable[Flag]) -> str | None:
    """Return why a run is left out by its flags: it did not run as its spec says. None if it did."""
    details = [one["detail"] for one in flags if one["code"] in LEFT_OUT]
    return "; ".join(details) or None


def counts_processes(run: Mapping[str, Any]) -> bool:
    """Return True if the ranks of a run (a row of RUNS) are processes: on CPUs, or sharing a GPU."""
    return run["torch_device"] == "cpu" or bool(details_of(run, "gpus_shared"))


def absent_kinds(row: Mapping[str, Any]) -> list[str]:
    """Return the device kinds out of a run's scope, where its flags say that nothing is known of them."""
    scope = (row["energy_scope"] or "").split("+")
    if not details_of(row, "absent") or scope == [NODE]:  # a node's meter counts all of its parts
        return []
    return [kind for kind in DEVICE_KINDS if kind not in scope]

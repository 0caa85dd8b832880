"""speed.json and speed.md, and what others published."""

from __future__ import annotations

import csv
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from scalewatt.common.files import write_json, write_text
from scalewatt.provenance.versions import cpu_name, made_with

PUBLISHED = Path(__file__).parents[2] / "reference" / "published_results.csv"


def facts(rehearsal: bool, energy_origin: str | None) -> dict[str, Any]:
    """Return what the comparison ran on."""
    code = made_with()
    cuda = torch.version.cuda
    return {
        "rehearsal": rehearsal,
        "device": cpu_name() if rehearsal else torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "commit": code["commit"],
        "commit_clean": code["commit_clean"],
        "energy_origin": energy_origin,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def published_speeds() -> list[dict[str, Any]]:
    """Return the least and the largest training samples per second and GPU that the paper's runs come to.

    Epochs times samples by GPU hours, which have validation and all else in them: of other devices, of
    other software, with data that were read.
    """
    found: dict[tuple[str, str, str], list[float]] = {}
    with PUBLISHED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu_hours"] and row["epochs"] and row["dataset_samples"]:
                samples = float(row["epochs"]) * float(row["dataset_samples"])
                key = row["model"], row["phase"], row["device"]
                found.setdefault(key, []).append(samples / (3600 * float(row["gpu_hours"])))
    return [
        {"model": model, "phase": phase, "device": device, "least": min(own), "most": max(own)}
        for (model, phase, device), own in sorted(found.items())
    ]


def write_results(folder: Path, content: dict[str, Any]) -> None:
    """Write both files anew, as far as the comparison has come."""
    write_json(folder / "speed.json", content)
    write_text(folder / "speed.md", "\n".join(_page(content)) + "\n")


def _page(content: dict[str, Any]) -> Iterator[str]:
    what = "Rehearsal on the CPU, tiny sizes" if content["rehearsal"] else "Speed and energy"
    yield f"# {what}: {content['device']}"
    yield ""
    cuda = f"CUDA {content['cuda']}, " if not content["rehearsal"] else ""
    yield (
        f"{content['started']}; torch {content['torch']}, {cuda}Python {content['python']}, commit "
        f"{content['commit']}; {content['seconds']:.0f} s, {content['state']}. "
        f"Energy: {content['energy_origin'] or 'not measured'}."
    )
    for name, title in (
        ("resnet50", "ResNet50: our loop and a plain one"),
        ("protocols", "ResNet50: whole epochs by protocol"),
        ("fourcastnet", "FourCastNet: literal, shipped, candidates"),
        ("fourcastnet_compiled", "FourCastNet: compiled"),
    ):
        if name in content["found"]:
            yield from _section(title, content["found"][name])
    yield from _parity(
        content["found"].get("fourcastnet", {}).get("parity", {})
        | content["found"].get("fourcastnet_compiled", {}).get("parity", {})
    )
    yield from _profiles(content["found"].get("profiles", {}))
    yield from _published(content["published"])
    for name, error in content["errors"].items():
        yield from ("", f"**{name} ended early:** {error}")


def _section(title: str, section: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"## {title}", "", f"Batch {section['batch']}; medians of windows.", "")
    yield "| training | samples/s | J per sample | peak memory, GiB | start, s | what |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for name, one in section["trainings"].items():
        yield (
            f"| {name} | {_number(one['samples_per_s_median'])} | "
            f"{_number(one['joules_per_sample_median'])} | {one['peak_memory_bytes'] / 2**30:.2f} | "
            f"{one['startup_s']:.1f} | {one['what']} |"
        )
    for name, reason in section.get("left_out", {}).items():
        yield f"| {name} | – | – | – | – | left out: {reason} |"
    yield from ("", "| ratio | of | median | least to most | rounds | goal |")
    yield "| --- | --- | ---: | ---: | ---: | --- |"
    for one in section["comparisons"]:
        yield f"| {one['of']} / {one['to']} | {one['quantity']} | {_ratio(one)} |"


def _ratio(one: dict[str, Any]) -> str:
    goal = "–"
    for sign, bound in (("≥", one["goal_at_least"]), ("≤", one["goal_at_most"])):
        if bound is not None:
            met = {True: "met", False: "missed", None: "unknown"}[one["goal_met"]]
            goal = f"{sign} {bound}: {met}"
    if one["ratios"] is None:
        return f"– | – | – | {goal}"
    spread = f"{one['least']:.3f} to {one['most']:.3f}"
    return f"{one['median']:.3f} | {spread} | {len(one['ratios'])} | {goal}"


def _parity(distances: dict[str, dict[str, Any]]) -> Iterator[str]:
    if not distances:
        return
    yield from ("", "## FourCastNet: distance from the literal network in fp32", "")
    yield "Relative L2, with weights that leave the spectral layers much to do."
    yield from (
        "",
        "| training | output | gradient | worst parameter |",
        "| --- | ---: | ---: | --- |",
    )
    for name, one in distances.items():
        worst = f"{one['gradient_worst_relative_l2']:.1e} ({one['gradient_worst_parameter']})"
        yield (
            f"| {name} | {one['output_relative_l2']:.1e} | {one['gradient_relative_l2']:.1e} |"
            f" {worst} |"
        )


def _profiles(profiles: dict[str, Any]) -> Iterator[str]:
    if not profiles:
        return
    yield from ("", "## Where the time of a step goes", "")
    yield from ("| profile | ms a step | launches a step | shares |", "| --- | ---: | ---: | --- |")
    for name, one in profiles.items():
        if "error" in one:
            yield f"| {name} | – | – | {one['error']} |"
            continue
        shares = ", ".join(f"{kind} {100 * s:.0f} %" for kind, s in (one["shares"] or {}).items())
        launches = sum(one["launches"].values()) / one["steps"]
        yield f"| {name} | {1e3 * one['seconds'] / one['steps']:.2f} | {launches:.0f} | {shares} |"


def _published(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from ("", "## Published, of other devices and with data that were read", "")
    yield from ("| training | device | samples/s and GPU |", "| --- | --- | ---: |")
    for one in rows:
        span = f"{_number(one['least'])} to {_number(one['most'])}"
        yield f"| {one['model']}, {one['phase']} | {one['device'].upper()} (published) | {span} |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"

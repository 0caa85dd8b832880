"""`scalewatt pilot`: write a campaign of the few short runs that calibrate the scaling model for another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.external_command import check_commands
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.model_registry import model_key
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.common.yaml_files import read_yaml
from scalewatt.scaling.model import Kind, kind_of_spec
from scalewatt.scaling.predict import FAR

_DROPPED = ("series", "figures", "energy_budget_kwh", "idle_probe")
_KEPT_OF_SERIES = ("model", "phase", "device", "protocol", "settings", *LEVERS)


def write_pilot(path: Path, out: Path | None) -> str:
    """Write the pilot of the campaign at `path` to `out`; the text to print.

    InputError if nothing of the campaign can be calibrated, or `out` exists already.
    """
    out = out or path.with_name(f"{path.stem}-pilot.yaml")
    if out.exists():
        raise InputError(f"{out}: exists already; expected a new file (--out FILE)")
    content, left_out = make_pilot(path)
    # The checks of any campaign: a mistake is found before anybody submits it.
    pilot = expand(content, out, known_devices())
    check_commands(pilot)
    head = (
        f"# The short runs that calibrate the scaling model for {path}, by `scalewatt pilot`.\n"
        "# docs/planning.md says what to do with their results.\n"
    )
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    write_text(out, head + text)
    lines = [
        f"{out}: written, runs: {sum(1 for _ in pilot.runs())}",
        *(f"left out: {reason}" for reason in left_out),
        f"next: snakemake --profile profiles/<yours> tables --config campaign={out}",
        f"then: scalewatt calibrate results/{pilot.name} --out scaling_model.json",
    ]
    return "\n".join(lines)


def make_pilot(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Content of the pilot of a campaign, and which kinds of training it leaves out, and why."""
    campaign, content = load_campaign(path), read_yaml(path)
    if campaign.registered:
        raise InputError(f"{path}: is of runs made elsewhere; expected a campaign that trains")
    kinds: dict[Kind, list[Configuration]] = {}
    for point in campaign.configurations.values():
        kinds.setdefault(kind_of_spec(run_spec(campaign, point.id, 1)), []).append(point)
    series, left_out, used = {}, [], set()
    for number, (kind, points) in enumerate(kinds.items(), 1):
        template = content["series"][campaign.series_of(points[0].id)[0]]
        part = template.get("dataset_fraction")
        try:
            runs = choose_runs(points)
        except InputError as error:
            left_out.append(f"{kind.name}: {error}")
            continue
        used |= {template["model"], model_key(template["model"], template.get("phase", "train"))}
        for gpus, local_batch_size, epochs in runs:
            name = f"{kind.key.replace('.', '-')}-{kind.device}-{number}"
            series[f"{name}-n{gpus:03d}-lbs{local_batch_size:04d}-epochs{epochs}"] = {
                **{key: template[key] for key in _KEPT_OF_SERIES if key in template},
                **({} if part is None else {"dataset_fraction": str(part).replace("n", f"{gpus}")}),
                **{"gpus": [gpus], "local_batch_size": local_batch_size},
                "settings": {**template.get("settings", {}), "epochs": epochs},
            }
    if not series:
        raise InputError(f"{path}: nothing of it can be calibrated: {'; '.join(left_out)}")
    pilot = {
        **{name: value for name, value in content.items() if name not in _DROPPED},
        "name": f"{content['name']}-pilot",
        "models": {name: entry for name, entry in content["models"].items() if name in used},
        "series": series,
        "figures": {"breakdown": {"series": [*series]}},
    }
    return json.loads(json.dumps(pilot)), left_out  # copied: no aliases in the file


def choose_runs(points: Sequence[Configuration]) -> list[tuple[int, int, int]]:
    """(n, LBS, epochs) of the runs that calibrate one kind of training.

    Two n × two LBS for one epoch, and two runs of two epochs, one of them with an LBS between. If the
    campaign has only one LBS, the second is its half, which fits wherever that fits. InputError if there is
    no second n, if the samples are not known, or of a fine-tuning.
    """
    first = points[0]
    if first.initial_weights:
        raise InputError("is predicted from its pre-training; calibrate on its own results later")
    if first.dataset_samples is None:
        raise InputError(f"its samples are not known; allowed: `samples` in models.{first.model}")
    counts = sorted({point.gpus for point in points})
    sizes = sorted({point.local_batch_size for point in points})
    # No n of the campaign is more than FAR times the larger one.
    if not (larger := [n for n in counts[1:] if FAR * n >= counts[-1]]):
        raise InputError(f"its only number of GPUs is {counts[0]}; expected another one as well")
    if len(sizes) == 1:
        steps = first.gradient_accumulation_steps
        sizes = sorted({steps * max(sizes[0] // (2 * steps), 1), sizes[0]})
    few, many, small, large = counts[0], larger[0], sizes[0], sizes[-1]
    runs = [(n, size, 1) for n in (few, many) for size in (small, large)]
    return list(dict.fromkeys([*runs, (few, large, 2), (many, sizes[len(sizes) // 2], 2)]))

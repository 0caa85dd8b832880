"""The study of one GPU: fit the campaign to it, run it, and draw its figures."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import expand, load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import write_text
from scalewatt.common.schema_validation import PROJECT_ROOT, one_of
from scalewatt.common.yaml_files import read_yaml
from scalewatt.gpu_study.fit import Fitted, asked_trials, fit
from scalewatt.gpu_study.gpu_here import Machine, cluster_content, least_train_s, machine_here
from scalewatt.gpu_study.plain_runs import Stopped, pack, prepare_all, train_all
from scalewatt.gpu_study.trials import run_trials

_REHEARSAL = {"seconds": 1.5, "trial_s": 0.2}
CAMPAIGNS = {False: "campaigns/one-gpu.yaml", True: "campaigns/one-gpu-rehearsal.yaml"}
"""By whether it is a rehearsal."""
_LOCAL = "profiles/local"
DRAWING_S = 90.0
"""Of the time limit: what tables, figures and report are expected to take."""


@dataclass(frozen=True)
class Limits:
    """What `--config` may say."""

    minutes: float = 25.0
    """The study may take, from its trials to its report."""
    energy_error: float = 0.03
    """To which share the energy of a point's training shall be known."""
    seconds: float | None = None
    """How long each point trains; without it as long as `energy_error` asks."""
    trial_s: float = 2.0
    """How long the updates of a trial are timed."""


def limits_of(given: Sequence[str], rehearse: bool) -> Limits:
    """Return the limits that KEY=VALUE texts say, else the default ones.

    InputError for an unknown key or what is no number above 0.
    """
    known = {field.name for field in fields(Limits)}
    values: dict[str, float] = dict(_REHEARSAL) if rehearse else {}
    for text in given:
        key, _, value = text.partition("=")
        if key not in known:
            raise InputError(f"--config {text}: unknown key '{key}'; {one_of(key, sorted(known))}")
        try:
            values[key] = float(value)
        except ValueError:
            values[key] = 0.0
        if not 0 < values[key] < 1e6:
            raise InputError(f"--config {text}: expected a number above 0")
    return Limits(**values)


def study(rehearse: bool, limits: Limits, draws: bool, packed: Path | None) -> int:
    """Run the study in results/<campaign>, or go on with it; return the exit code.

    Trainings are started here, one after the other with nothing beside them; Snakemake makes the rest of
    their folders. `packed`: a new archive of the results, without weights.
    """
    if packed is not None and (packed.exists() or not packed.absolute().parent.is_dir()):
        raise InputError(f"--pack {packed}: expected a new file in a folder that there is")
    until_s = time.monotonic() + limits.minutes * 60 - DRAWING_S
    machine = machine_here(rehearse)
    name = f"{read_yaml(PROJECT_ROOT / CAMPAIGNS[rehearse])['name']}-{machine.device}"
    folder, profile = Path("results", name), Path("profiles", name)
    campaign_file, cluster_file = folder / "campaign.yaml", profile / "cluster.yaml"
    _write_profile(machine, profile, campaign_file)
    if campaign_file.exists():
        print(f"{campaign_file}: was fitted before, and stays as it is", flush=True)
    else:
        _fit_to(machine, rehearse, limits, cluster_file, folder)
    cluster = load_cluster(cluster_file)
    was = cluster.devices[machine.device].description
    if was != machine.name:
        raise InputError(
            f"{folder}: is a study of {was}, this is {machine.name}; move it and {profile} away"
        )
    campaign = load_campaign(campaign_file, cluster)
    prepare_all(campaign, cluster, folder)
    try:
        trained = train_all(campaign, cluster, cluster_file, folder, until_s, _say)
    except Stopped:
        print("Stopped at a checkpoint; the same command goes on from there", file=sys.stderr)
        return ExitCode.STOPPED
    for one in trained.failed:
        print(f"failed: {one}", file=sys.stderr)
    if packed is not None:
        pack((folder, profile), packed)
    code = _draw(folder, profile, draws)
    if trained.not_started:
        print(
            f"Not started after {limits.minutes:g} min: {', '.join(trained.not_started)};"
            " the same command goes on with them",
            file=sys.stderr,
        )
    if trained.failed or code:
        return 1
    return ExitCode.STOPPED if trained.not_started else 0


def _draw(folder: Path, profile: Path, draws: bool) -> int:
    """Make tables, figures and report of the runs there are, or say how; return the exit code."""
    snakemake = ["--profile", str(profile), "all", "--config", "results_only=true"]
    if not (draws and has_snakemake()):
        print(f"Tables and figures, where Snakemake is: snakemake {' '.join(snakemake)}")
        return 0
    code = subprocess.run([sys.executable, "-m", "snakemake", *snakemake], check=False).returncode
    if code == 0:
        print(f"Report:  {folder / 'report.html'}")
        print(f"Figures: {folder / 'figures'}")
    return code


def has_snakemake() -> bool:
    """Return True if this Python has Snakemake."""
    return importlib.util.find_spec("snakemake") is not None


def _write_profile(machine: Machine, profile: Path, campaign_file: Path) -> None:
    """Write a profile of this machine after profiles/local, unless there is one."""
    if (profile / "cluster.yaml").exists():
        return
    local = PROJECT_ROOT / _LOCAL
    text = (local / "profile.yaml").read_text(encoding="utf-8")
    write_text(profile / "profile.yaml", text.replace(_LOCAL, str(profile)))
    content = read_yaml(local / "cluster.yaml")
    made = cluster_content(content, machine, profile.name, str(campaign_file))
    _write_yaml(
        profile / "cluster.yaml", made, "# By `scalewatt gpu-study`, after profiles/local.\n"
    )


def _fit_to(
    machine: Machine, rehearse: bool, limits: Limits, cluster_file: Path, folder: Path
) -> None:
    """Write campaign.yaml of a study on a machine."""
    began_s = time.monotonic()
    cluster = load_cluster(cluster_file)
    source = CAMPAIGNS[rehearse]
    content = _of_machine(read_yaml(PROJECT_ROOT / source), machine)
    campaign = expand(content, PROJECT_ROOT / source, cluster.devices)
    print(f"{machine.name}: trying {len(campaign.series)} trainings of {source}", flush=True)
    folders = prepare_all(campaign, cluster, folder)
    device = cluster.devices[machine.device]
    asked = asked_trials(campaign, folders)
    trials = run_trials(asked, device.torch_device, device.cpus_per_rank, limits.trial_s, _say)
    seconds = limits.seconds or least_train_s(
        machine.name, campaign_period_s(campaign), limits.energy_error
    )
    left_min = limits.minutes - (time.monotonic() - began_s + DRAWING_S) / 60
    fitted = fit(content, campaign, trials, seconds, left_min)
    expand(fitted.content, folder / "campaign.yaml", cluster.devices)  # all checks of a campaign
    head = (
        f"# {source}, fitted by `scalewatt gpu-study` to {machine.name}: each point trains for about\n"
        f"# {seconds:.0f} s.\n" + "".join(f"# Left out: {one}\n" for one in fitted.left_out)
    )
    _write_yaml(folder / "campaign.yaml", fitted.content, head)
    _tell_fitted(fitted, folder)


def _of_machine(content: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Return a campaign's content on a machine's device, named after it, its loaders on all cores."""
    series = {
        name: {**entry, "device": machine.device} for name, entry in content["series"].items()
    }
    models = {
        name: {**entry, "loader_workers": min(machine.cores, entry["loader_workers"])}
        if "loader_workers" in entry
        else entry
        for name, entry in content["models"].items()
    }
    return {
        **content, "name": f"{content['name']}-{machine.device}", "series": series, "models": models
    }  # fmt: skip


def campaign_period_s(campaign: Campaign) -> float:
    """Return the sampling period of a campaign in s."""
    period_s = next(iter(campaign.configurations.values())).sampling_period_s
    assert period_s is not None  # only registered runs have none
    return period_s


def _tell_fitted(fitted: Fitted, folder: Path) -> None:
    for one in fitted.left_out:
        print(f"left out: {one}")
    runs = sum(entry["repeats"] for entry in fitted.content["series"].values())
    print(f"{folder / 'campaign.yaml'}: {runs} runs, about {fitted.minutes:.0f} min", flush=True)


def _write_yaml(path: Path, content: Mapping[str, Any], head: str) -> None:
    text = yaml.dump(dict(content), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    write_text(path, head + text)


class _Plain(yaml.SafeDumper):
    """Writes what stands in several places in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _say(text: str) -> None:
    print(text, flush=True)

"""A cluster file: what the machine is, and how it is used."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, BeforeValidator, Field, model_validator, with_config
from typing_extensions import TypedDict

from scalewatt.campaign.command_text import placeholders, words_with
from scalewatt.campaign.operating_points import Levers
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.project_files import PROJECT_ROOT, find_file
from scalewatt.common.settings import STRICT, Bounds, EachOnce, Settings, matching, validated
from scalewatt.common.yaml_files import read_yaml

PLACEHOLDERS = ("gpus", "nodes", "ranks_per_node", "cpus_per_rank")
"""Of a launcher."""
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        "letters, digits, '.', '_' and '-', at most 100, a letter or digit first",
    ),
]
NoSpaces = Annotated[str, matching(r"[^\s-]\S*", "a name without spaces")]
Cpus = Annotated[int, Field(ge=1, le=100_000)]
Origin = Annotated[str, Field(description="Where the value comes from.")]


# --- rated powers, from which energy is estimated ---------------------------------------------------

Watts = Annotated[float, Bounds(gt=0, le=10_000)]
IdleWatts = Annotated[float, Bounds(ge=0, le=10_000)]
Factor = Annotated[
    float,
    Bounds(ge=1, le=1000),
    Field(
        description="The true power is within × or ÷ this factor of the estimate, as far as you know; "
        "without this key 5.4."
    ),
]


def _idle_below_rated(part: Any) -> Any:
    if part["rated_w"] < part["idle_w"]:
        raise ValueError(
            f"rated_w: {part['rated_w']:g} is below its idle_w {part['idle_w']:g}; allowed: "
            f"{part['idle_w']:g} or more"
        )
    return part


@with_config(STRICT)
class CpuPower(TypedDict):
    """Per socket; used if no sensor can be read. Only a device of registered runs may lack it; their
    energy then covers the recorded parts."""

    sockets: Annotated[int, Field(ge=1, le=1000)]
    """CPU sockets of a node."""
    idle_w: IdleWatts
    """Watts when idle, for simulations; estimates do not use it."""
    rated_w: Watts
    """The manufacturer's rated power (TDP) in watts. Estimates: 0.74 · rated_w · (0.1 + 0.9 · load)."""
    factor: NotRequired[Factor]


@with_config(STRICT)
class GpuPower(TypedDict):
    """Per GPU; used if no sensor can be read."""

    idle_w: IdleWatts
    """Watts when idle."""
    rated_w: Watts
    """Watts at full utilisation."""
    factor: NotRequired[Factor]


@with_config(STRICT)
class RamPower(TypedDict):
    """Per node; used if no sensor can be read."""

    power_w: Annotated[float, Bounds(ge=0, le=100_000)]
    """Watts, whatever the load."""
    factor: NotRequired[Factor]


Cpu = Annotated[CpuPower, AfterValidator(_idle_below_rated)]
Gpu = Annotated[GpuPower, AfterValidator(_idle_below_rated)]


# --- devices ----------------------------------------------------------------------------------------


class Device(Settings):
    """A kind of node; its powers are for estimation only."""

    name: str = Field("", exclude=True)
    description: str = ""
    """Free text, for the reader."""
    gpus_per_node: Cpus
    """GPUs, and so ranks, of a node."""
    max_gpus: int | None = Field(None, ge=1)
    """The most GPUs one job may use."""
    cpus_per_rank: Cpus
    """CPUs of a rank, as Slurm counts them."""
    torch_device: Literal["auto", "cpu", "cuda"] = "cuda"
    """auto: GPUs where there are any, else CPUs."""
    max_local_batch_size: dict[str, Annotated[int, Field(ge=1)]] = {}
    """Largest local batch known to fit, by model or model.phase."""
    partition: NoSpaces | None = None
    """Slurm partition, or several with ',' between."""
    gres: NoSpaces | None = None
    """Slurm's name of the GPU, e.g. gpu."""
    memory_mb: int = Field(0, ge=0)
    """Memory of a node for the job in MB; 0 asks for nothing: on an exclusive node the partition's
    default for all its CPUs."""
    time_limit_min: int | None = Field(None, ge=1, le=525_600)
    """Longest wall time of a job in minutes; needed if the device has a partition."""
    cpu: Cpu = {}  # type: ignore[typeddict-item]
    gpu: Gpu | None = None
    ram: RamPower | None = None

    @property
    def probe_ranks(self) -> int:
        """Ranks of an idle probe: one per GPU of a node, or a single one on a CPU."""
        return 1 if self.torch_device == "cpu" else self.gpus_per_node


def _named(devices: dict[str, Device]) -> dict[str, Device]:
    """Give each device its name, which the file has as its key."""
    for name, device in devices.items():
        if device.name not in ("", name):
            raise ValueError(f"{name}: unknown key 'name'; the device's key is its name")
    return {name: device.model_copy(update={"name": name}) for name, device in devices.items()}


Devices = Annotated[dict[Name, Device], AfterValidator(_named)]


# --- factors of energy ----------------------------------------------------------------------------


@with_config(STRICT)
class Pue(TypedDict):
    """Power usage effectiveness of the site."""

    value: Annotated[float, Bounds(ge=1, le=10)]
    """Energy of the site divided by that of its computers, at least 1."""
    source: Origin


@with_config(STRICT)
class CarbonIntensity(TypedDict):
    """g CO2e per kWh."""

    value: Annotated[float, Bounds(ge=0, le=10_000)]
    """g CO2e per kWh."""
    source: Origin


@with_config(STRICT)
class Price(TypedDict):
    """Price per kWh."""

    value: Annotated[float, Bounds(ge=0)]
    """Price of a kWh."""
    source: Origin
    currency: NotRequired[Text]
    """Its currency, such as EUR."""


def _starts_ranks(launcher: str) -> str:
    """Refuse a launcher that does not say how many ranks there are."""
    names = placeholders(launcher)
    if not (names & {"gpus"} or names >= {"nodes", "ranks_per_node"} or launcher == "false"):
        raise ValueError(
            f"{launcher!r} does not say how many ranks to start; allowed: with {{gpus}}, or with "
            "{nodes} and {ranks_per_node}; `false` where nothing is ever started"
        )
    return launcher


def _as_bool(value: Any) -> Any:
    """Boolean of a text: `--config results_only=true` reaches Snakemake as one."""
    return {"true": True, "false": False}.get(str(value).lower(), value)


# --- the cluster ------------------------------------------------------------------------------------


class Cluster(Settings):
    """A cluster: devices, launcher, folders and limits."""

    name: Name = Field(alias="cluster")
    """The cluster's name: letters, digits, '.', '_' and '-', at most 100, a letter or digit first."""
    campaign: str = "campaigns/paper.yaml"
    """Campaign file, from the project's folder; --config campaign=FILE changes it."""
    results_only: Annotated[bool | None, BeforeValidator(_as_bool)] = None
    """Use finished runs of the campaign's settings as they are and never train. Default: true if
    `devices` has none of the campaign's devices; false with mode simulate."""
    reproduce_run: str | None = None
    """CONFIGURATION/REPEAT of the finished run that the target reproduce makes again; also --config
    reproduce_run=…. Default: the one with the fewest GPU hours that can be made here."""
    max_gpus: int | None = Field(None, ge=1)
    """Points on more GPUs are left out of the campaign and its totals, and named; also --config
    max_gpus=16. Registered runs stay. By default no point is left out, and one above its device's
    max_gpus is refused."""
    only: Text | None = None
    """CONFIGURATION/REPEAT, or CONFIGURATION for all its repeats, several with commas: every target is
    limited to these runs, and no idle probe is made; also --config only=…. Default: all runs."""
    mode: Literal["train", "simulate"] = "train"
    """simulate: instead of training, write the files that a training would leave, from the scaling model.
    Results go to results/<campaign>-simulated."""
    work_root: Text = "work"
    """Folder of the runs' working directories, with checkpoints, segments and, for finished runs, hard
    links to their recordings; all nodes must see it."""
    data_roots: dict[str, str] = {}
    """Folder of each dataset, by its name; default data/<name>, for embedded ones data/<name>-<hash of the
    definition>."""
    sources: dict[str, Text] = {}
    """What each dataset is prepared from, by its name. imagenet: a folder with the official tars, or with
    train/<class>/<image> and val/<class>/<image>; era5: a Zarr store (path or fsspec URL), GRIB or netCDF
    files by patterns such as /data/*.nc, several with spaces, or a folder with the original project's
    years."""
    scratch: Text | None = None
    """Folder on a node's own disk (variables such as $TMPDIR are expanded there) to which one rank per node
    unpacks ImageNet's packed file before training; null: images are read where they are."""
    launcher: Annotated[str, words_with(PLACEHOLDERS), AfterValidator(_starts_ranks)]
    """Starts the ranks. Placeholders: {gpus} {nodes} {ranks_per_node} {cpus_per_rank}; {gpus} must be
    there, or {nodes} and {ranks_per_node}; on Slurm write them all out, because Snakemake takes most
    SLURM_* variables away inside a job. The MPI of envs/lock.txt is MPICH, which needs --mpi=pmi2."""
    setup: list[str] = []
    """Shell commands before each training or probe (module load ...). The wheels of envs/lock.txt bring
    CUDA, NCCL and MPI, so in most cases none is needed."""
    account: NoSpaces | None = None
    """Slurm account that jobs are charged to, without spaces; environment variables ($NAME) are expanded
    when a job is submitted. Without this key: Slurm's default account."""
    exclude_nodes: Annotated[list[NoSpaces], EachOnce] = []
    """Nodes that no training or probe is sent to, by name or Slurm's pattern such as n[01-03]."""
    stop_warning_s: int = Field(600, ge=1, le=65_535)
    """How long before the end of its wall time a job is told (by USR1) to stop at a checkpoint, in s.
    Slurm may be up to a minute early."""
    closing_s: Annotated[float, Bounds(ge=1, le=3600)] = 120
    """How long ranks may take to end once training has returned and images on the nodes' own disks are
    removed, in s: perun writes its file meanwhile. Whatever takes longer is ended; the run is kept, with
    the journal instead of that file. A rank of a command may continue for as long after rank 0."""
    checkpoint_every_s: Annotated[float, Bounds(ge=0)] = 600
    """Age in s of the last checkpoint at which a training writes another one: the most that a crash
    costs. One is also written at every stop."""
    crash_retries: int = Field(3, ge=0, le=1000)
    """How often a run that crashed without progress in between is submitted again, from its last
    checkpoint."""
    requeue: bool = False
    """Put a job that Slurm warned before its time limit back into Slurm's queue, under the same job id, and
    let Slurm do so with jobs whose node is lost; otherwise Snakemake submits another job."""
    min_free_gib: Annotated[float, Bounds(ge=0)] = 1
    """Free space that work_root, the results and .snakemake must have before a training, probe or data job is
    submitted, in GiB."""
    pue: Pue | None = None
    carbon_intensity: CarbonIntensity | None = None
    price: Price | None = None
    levers: Levers = {}
    """What sets each lever of gpu_clock_mhz, gpu_power_limit_w and cpu_clock_mhz that a campaign asks for:
    options of the launcher, such as --gpu-freq={value} of srun, or commands with their undo. Placeholders:
    {value}, and {khz} for a clock in kHz."""
    scaling_model: Text | None = None
    """File of this cluster's scaling model, from the project's folder (scalewatt calibrate writes it),
    for plans and the wall times that jobs ask for; null: none."""
    devices: Devices = Field(min_length=1)
    """The kinds of node, by the device's name. Either all of them have a partition, or the machine counts
    as one without Slurm."""

    @model_validator(mode="after")
    def _check(self) -> Cluster:
        is_slurm = any(device.partition for device in self.devices.values())
        for device in self.devices.values() if is_slurm else ():
            for key in ("partition", "time_limit_min"):
                if not getattr(device, key):
                    raise ValueError(
                        f"devices.{device.name}: missing key '{key}'; expected on Slurm: the partition and "
                        "the longest wall time of its jobs, of all devices"
                    )
        if self.simulates and not self.scaling_model and not self.results_only:
            raise ValueError(
                "mode simulate: missing key 'scaling_model'; expected the file that `scalewatt "
                "calibrate` writes, e.g. reference/scaling_model.json"
            )
        return self

    @property
    def simulates(self) -> bool:
        """True if runs are simulated and none is trained."""
        return self.mode == "simulate"

    @property
    def currency(self) -> str:
        """Currency of its price; empty where there is none."""
        return self.price.get("currency", "") if self.price else ""

    def data_folder(self, dataset: dict[str, Any]) -> str:
        """Folder of the prepared dataset; by default below data/.

        That of a dataset from no data root carries its definition's hash: two campaigns may define one
        name differently.
        """
        name, default = dataset["name"], f"data/{dataset['name']}"
        if is_made_here(dataset):
            text = json.dumps(dataset, sort_keys=True)
            default = f"{default}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return self.data_roots.get(name, default)


def is_made_here(dataset: dict[str, Any]) -> bool:
    """True if a dataset's definition alone makes it: nothing is read from a data root."""
    return bool(dataset["source"] != "data_root")


# --- reading ----------------------------------------------------------------------------------------


def site_files() -> list[Path]:
    """Cluster files with a name: config.yaml and config/*.yaml here, then those that came along."""
    roots = (Path(),) if Path.cwd() == PROJECT_ROOT else (Path(), PROJECT_ROOT)
    patterns = [(root, name) for root in roots for name in ("config.yaml", "config/*.yaml")]
    return [path for root, name in patterns for path in sorted(root.glob(name))]


def site_file(site: str) -> Path:
    """Cluster file of an option `--site`: `local` is config.yaml, NAME config/NAME.yaml, else a path."""
    named = find_file("config.yaml" if site == "local" else f"config/{site}.yaml")
    for path in (named, find_file(site)):
        if os.path.exists(path) and not os.path.isdir(path):  # os.path: it takes any name
            return path
    names = [path.stem for path in site_files() if path.name != "config.yaml"]
    allowed = one_of(Path(site).stem, ("FILE", "local", *dict.fromkeys(names)))
    raise InputError(f"--site {site}: neither a cluster file nor the name of one; {allowed}")


def load_site(site: str) -> Cluster:
    """Read the cluster of an option `--site`."""
    return load_cluster(site_file(site))


def load_cluster(path: Path | str) -> Cluster:
    """Read a cluster file."""
    return parse_cluster(read_yaml(path), str(path))


def parse_cluster(content: dict[str, Any], where: str) -> Cluster:
    """Check a cluster's content (Snakemake's `config`); `where` names it in messages."""
    return validated(Cluster, content, where)


def known_devices(cluster: Cluster | None = None) -> dict[str, Device]:
    """Devices by name: those of `cluster`, then of every site.

    A file that is wrong is reported and skipped: it may not be the one in use.
    """
    devices: dict[str, Device] = dict(cluster.devices) if cluster else {}
    for path in site_files():
        try:
            devices = {**load_cluster(path).devices, **devices}
        except InputError as error:
            print(f"scalewatt: skipped: {error}", file=sys.stderr)
    return devices


def other_device(name: str, devices: Iterable[str]) -> str:
    """Name the devices that are known in place of a missing one. A near name is no advice: A100, H100."""
    names = ", ".join(sorted(devices)) or "nothing"
    return f"allowed: {names}; add '{name}' to `devices` of the cluster file"


def device_of_run(cluster: Cluster, device: str, run: str) -> Device:
    """A cluster's device of that name; InputError, which names `run`, where it has none."""
    if device not in cluster.devices:
        raise InputError(
            f"{run}: the cluster '{cluster.name}' has no device '{device}'; "
            f"{other_device(device, cluster.devices)}"
        )
    return cluster.devices[device]


def basis(cluster: Cluster, devices: list[Device]) -> list[str]:
    """Sentences on which numbers come from the cluster file: rated powers, PUE, carbon, price."""
    sentences = [
        f"Powers of {device.name} where no sensor is: {_text(powers(device)) or 'not known'}."
        for device in devices
    ]
    if others := [device.name for device in devices if device.name not in cluster.devices]:
        return [*sentences, f"No PUE, carbon and price: {cluster.name} lacks {', '.join(others)}."]
    factors = (
        ("PUE", cluster.pue, ""),
        ("Carbon", cluster.carbon_intensity, " g/kWh"),
        ("Price", cluster.price, f" {cluster.currency}/kWh"),
    )
    for name, factor, unit in factors:
        if factor:
            sentences.append(f"{name} {factor['value']}{unit}: {factor['source']}.")
    return sentences


def _text(values: Mapping[str, Any]) -> str:
    """Keys and values as the cluster file has them."""
    nested = {k: f"({_text(v)})" if isinstance(v, dict) else v for k, v in values.items() if v}
    return ", ".join(f"{key} {text}" for key, text in nested.items())


def campaign_path(cluster: Cluster) -> Path:
    """Path of a cluster file's campaign."""
    return find_file(cluster.campaign)


def powers(device: Device) -> dict[str, Any]:
    """Rated powers in W by device kind, for estimation."""
    return {"cpu": device.cpu, "gpu": device.gpu, "ram": device.ram}

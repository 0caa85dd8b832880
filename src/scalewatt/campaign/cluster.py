"""Reading a cluster file: what the machine is."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from string import Formatter
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Cluster, Device
from scalewatt.campaign.operating_points import check_ways
from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json
from scalewatt.common.rated_powers import check_idle_powers
from scalewatt.common.schema_validation import PROJECT_ROOT, check, one_of, schema, shipped
from scalewatt.common.yaml_files import read_yaml

_PLACEHOLDERS = ("gpus", "nodes", "ranks_per_node", "cpus_per_rank")


def load_cluster(path: Path | str) -> Cluster:
    """Read and check a cluster file; InputError, too, if the file of carbon intensity cannot be read."""
    inside = os.path.join(path, "cluster.yaml")  # os.path: it takes any name
    if os.path.isfile(inside):
        raise InputError(f"{path}: is a folder, not a cluster file; did you mean {inside}?")
    cluster = parse_cluster(read_yaml(path), str(path))
    _check_carbon_file(cluster, str(path))
    return cluster


def _check_carbon_file(cluster: Cluster, where: str) -> None:
    """Raise InputError if a cluster names a file of carbon intensity that cannot be read."""
    file = carbon_file(cluster)
    if file is None:
        return
    try:
        file.open().close()
    except OSError as error:
        begins = " or ".join(map(str, dict.fromkeys((Path.cwd(), PROJECT_ROOT))))
        begin = "" if file.is_absolute() else f"; paths begin in {begins}"
        raise InputError(
            f"{where}: carbon_intensity.file: {file} cannot be read ({error.strerror}); expected a CSV "
            f"file of g CO2e per kWh over time (docs/energy.md){begin}"
        ) from error


def parse_cluster(content: dict[str, Any], where: str) -> Cluster:
    """Check a cluster's content (Snakemake's `config`); `where` names it in messages."""
    root = schema("cluster")
    campaign_keys = set(schema("campaign")["properties"])
    blended = sorted(set(content) & campaign_keys)
    if blended:
        raise InputError(
            f"{where}: '{blended[0]}' is a key of a campaign, not of a cluster; "
            "choose a campaign with --config campaign=FILE, not with --configfile"
        )
    # --config results_only=true reaches Snakemake as a text.
    content = {**content, **{k: _as_bool(v) for k, v in content.items() if k == "results_only"}}
    check(content, root, where, root)
    for name, source in content.get("sources", {}).items():
        check_source(source, f"{where}: sources.{name}")
    _check_launcher(content["launcher"], f"{where}: launcher")
    check_ways(content.get("levers", {}), f"{where}: levers")
    known = {f.name for f in fields(Cluster)}
    devices = {name: Device(name=name, **entry) for name, entry in content["devices"].items()}
    _check_partitions(devices, where)
    for name, entry in content["devices"].items():
        check_idle_powers(entry, f"{where}: devices.{name}")
    carbon = content.get("carbon_intensity")
    if carbon and not {"value", "file"} & set(carbon):
        raise InputError(
            f"{where}: carbon_intensity: missing key 'value' or 'file'; allowed: g CO2e per kWh as one "
            "number, as a CSV file of values over time, or both"
        )
    if content.get("mode") == "simulate" and not content.get("scaling_model"):
        raise InputError(
            f"{where}: mode simulate: missing key 'scaling_model'; expected the file that "
            "`scalewatt calibrate` writes, e.g. reference/scaling_model.json"
        )
    if content.get("simulate") and content.get("mode") != "simulate":
        raise InputError(
            f"{where}: simulate: is how simulations are recorded, but mode is "
            f"{content.get('mode', 'train')}; allowed: with mode simulate"
        )
    rest = {k: v for k, v in content.items() if k in known and k != "devices"}
    lists = {key: tuple(content.get(key, ())) for key in ("setup", "exclude_nodes")}
    return Cluster(name=content["cluster"], devices=devices, **{**rest, **lists})


def check_options(given: Mapping[str, Any]) -> None:
    """Raise InputError for a key of Snakemake's `--config` that no cluster file has, or its value."""
    root = schema("cluster")
    known = root["properties"]
    of_campaigns = schema("campaign")["properties"]
    for key, value in given.items():
        if key in of_campaigns and key not in known:
            raise InputError(
                f"--config: '{key}' is a key of a campaign, not of a cluster; change the campaign file, "
                "or choose another with --config campaign=FILE"
            )
        if key not in known:
            raise InputError(f"--config: unknown key '{key}'; {one_of(key, sorted(known))}")
        # Keys within an object are added to those of the cluster file, with which they are checked.
        if not isinstance(value, dict):
            value = _as_bool(value) if key == "results_only" else value
            check(value, known[key], f"--config {key}", root)


def _check_launcher(launcher: str, where: str) -> None:
    """Raise InputError unless a launcher is words of a shell that say how many ranks there are."""
    allowed = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS)
    try:
        fields_ = [found[1:] for found in Formatter().parse(launcher) if found[1] is not None]
        for name, form, conversion in fields_:
            if name not in _PLACEHOLDERS or form or conversion:
                rest = f"{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
                raise ValueError(f"unknown placeholder {{{name}{rest}}}")
        words = shlex.split(launcher.format(**dict.fromkeys(_PLACEHOLDERS, 1)))
    except ValueError as error:
        raise InputError(
            f"{where}: {launcher!r}: {error}; allowed: words as in a shell, with the placeholders "
            f"{allowed}"
        ) from error
    named = {name for name, *_ in fields_}
    if not words or "\0" in launcher:
        raise InputError(f"{where}: {launcher!r} is no command; allowed: a program, {allowed}")
    if "gpus" not in named and not named >= {"nodes", "ranks_per_node"} and words != ["false"]:
        raise InputError(
            f"{where}: {launcher!r} does not say how many ranks to start; allowed: with {{gpus}}, or "
            "with {nodes} and {ranks_per_node}; `false` where nothing is ever started"
        )


def _check_partitions(devices: dict[str, Device], where: str) -> None:
    """Check that all devices of a cluster have a partition with its time limit, or none has."""
    with_partition = [device for device in devices.values() if device.partition]
    if not with_partition:
        return
    for device in devices.values():
        if not device.partition:
            raise InputError(
                f"{where}: devices.{device.name}: missing key 'partition', which "
                f"devices.{with_partition[0].name} has; allowed: all devices of a file or none"
            )
        if device.time_limit_min is None:
            raise InputError(
                f"{where}: devices.{device.name}: missing key 'time_limit_min'; expected with "
                f"partition '{device.partition}': the longest wall time of its jobs in minutes"
            )


def check_source(source: Any, where: str) -> None:
    """Hold a dataset's source (text or object) against the schema; `where` names it in messages."""
    root = schema("cluster")
    check(source, root["$defs"]["source"], where, root)
    if isinstance(source, str):
        return
    kinds = [key for key in root["$defs"]["source"]["properties"] if key != "md5"]
    given = [key for key in kinds if key in source]
    if len(given) != 1:
        raise InputError(
            f"{where}: gives {' and '.join(given) or 'none'} of {', '.join(kinds)}; "
            "expected exactly one"
        )
    if "md5" in source and given != ["tars"]:
        raise InputError(f"{where}: md5 goes with tars, not with {given[0]}")


def read_source(text: str) -> str | dict[str, Any]:
    """Return what `Cluster.source_text` gave: a path or URL as it is, an object from its JSON."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        source = parse_json(text)
    except ValueError as error:
        raise InputError(f"--source: {text[:100]!r} is no JSON object ({error})") from error
    check_source(source, "--source")
    return source


def _as_bool(value: Any) -> Any:
    return {"true": True, "false": False}.get(str(value).lower(), value)


def known_devices(cluster: Cluster | None = None) -> dict[str, Device]:
    """Return devices by name: those of `cluster`, then of every profile here, then of those that ship.

    A profile's cluster file that is wrong is reported and skipped: it may not be the one in use. Nor is
    its file of carbon intensity looked for.
    """
    devices: dict[str, Device] = dict(cluster.devices) if cluster else {}
    here, shipped_ones = (
        sorted(root.glob("*/cluster.yaml"))
        for root in (Path("profiles"), PROJECT_ROOT / "profiles")
    )
    own = {path.resolve() for path in here}
    for path in (*here, *(path for path in shipped_ones if path.resolve() not in own)):
        try:
            found = parse_cluster(read_yaml(path), str(path)).devices
        except InputError as error:
            print(f"scalewatt: skipped: {error}", file=sys.stderr)
            continue
        for name, device in found.items():
            devices.setdefault(name, device)
    return devices


def other_device(name: str, devices: Iterable[str]) -> str:
    """Return which devices there are in place of one that is missing, and how it is added or changed.

    A near name is no advice: an A100 is no H100.
    """
    return (
        f"allowed: {', '.join(sorted(devices)) or 'nothing'}; add '{name}' to `devices` of the cluster "
        "file (docs/your-cluster.md), or change the device of what names it"
    )


def given_cluster(given: str) -> Cluster:
    """Return the cluster of an option `--cluster`: its file, or its content as JSON."""
    if not given.lstrip().startswith("{"):
        return load_cluster(given)
    try:
        content = parse_json(given)
    except ValueError as error:
        raise InputError(
            f"--cluster: {given[:100]!r} is no JSON object ({error}); expected one, or a cluster file"
        ) from error
    return parse_cluster(content, "cluster")


def is_results_only(campaign: Campaign, cluster: Cluster) -> bool:
    """Return True if finished runs are used as they are, and none is trained."""
    if campaign.registered or campaign.imported:
        return True
    if cluster.results_only is not None:
        return cluster.results_only
    if cluster.simulates:  # there are no finished runs for it: what it cannot simulate is refused
        return False
    return not campaign.whole.devices() & set(cluster.devices)


def cluster_of_run(given: str, device: str, run: str) -> tuple[Cluster, Device]:
    """Return the cluster from its file, or its content as JSON, and a device of it.

    InputError, which names `run`, where the cluster has no such device.
    """
    cluster = given_cluster(given)
    if device not in cluster.devices:
        raise InputError(
            f"{run}: the cluster '{cluster.name}' has no device '{device}'; "
            f"{other_device(device, cluster.devices)}"
        )
    return cluster, cluster.devices[device]


def basis(cluster: Cluster, devices: list[Device]) -> list[str]:
    """Return sentences on which numbers come from the cluster file: rated powers, PUE, carbon, price."""
    sentences = []
    for device in devices:
        parts = []
        if device.cpu:
            parts.append(f"{device.cpu['sockets']} CPU socket(s) {_cpu_powers(device.cpu)}")
        if device.gpu:
            parts.append(f"GPU {device.gpu['idle_w']}–{device.gpu['rated_w']} W")
        if device.ram:
            parts.append(f"memory {device.ram['power_w']} W")
        sentences.append(
            f"Powers of {device.name} used where no sensor is: {'; '.join(parts)}."
            if parts
            else f"No rated powers of {device.name} are known: nothing is estimated."
        )
    others = [device.name for device in devices if device.name not in cluster.devices]
    if others:
        sentences.append(
            f"PUE, carbon and price of the cluster '{cluster.name}' are not used: "
            f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} none of its devices; "
            "`devices` of the cluster file names them."
        )
        return sentences
    factors = (("PUE", cluster.pue, ""), ("Carbon", cluster.carbon_intensity, " g/kWh"))
    for word, factor, unit in factors:
        if factor and "value" in factor:
            sentences.append(f"{word} {factor['value']}{unit}: {factor['source']}.")
    if (file := carbon_file(cluster)) is not None and cluster.carbon_intensity:
        sentences.append(f"Carbon over time by {file.name}: {cluster.carbon_intensity['source']}.")
    if cluster.price:
        currency = cluster.price.get("currency", "")
        sentences.append(
            f"Price {cluster.price['value']} {currency}/kWh: {cluster.price['source']}."
        )
    return sentences


def campaign_path(cluster: Cluster) -> Path:
    """Return the path of a cluster file's campaign: the working directory's, or one that came along."""
    found = shipped(cluster.campaign)
    return found if found.exists() else Path(cluster.campaign)


def carbon_file(cluster: Cluster) -> Path | None:
    """Return the path of a cluster's file of carbon intensity; None without one.

    A relative path is relative to the working directory, or else to the project's folder.
    """
    given = (cluster.carbon_intensity or {}).get("file")
    if given is None:
        return None
    found = shipped(given)
    return found if found.exists() else Path(given)


def _cpu_powers(cpu: dict[str, Any]) -> str:
    if not cpu.get("load_w"):
        return f"of {cpu['rated_w']} W"
    return ", ".join(f"{watts} W at {load} %" for load, watts in cpu["load_w"])


def powers_by_device(given: str) -> Callable[[str, str], dict[str, Any]]:
    """Function from names of a device, and of a run for messages, to the powers in the cluster `given`."""
    return lambda device, run: powers(cluster_of_run(given, device, run)[1])


def powers(device: Device) -> dict[str, Any]:
    """Return what the cluster file says of powers in W by device kind, for estimation."""
    return {"cpu": device.cpu, "gpu": device.gpu, "ram": device.ram}

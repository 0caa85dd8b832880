"""The cluster that a campaign ran on, as a cluster file that goes with its archive.

Whoever imports the archive draws from it with this file: nothing is trained, and devices, PUE, carbon and
price are those of the campaign. Accounts, partitions, launchers and folders stay at home.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, parse_cluster
from scalewatt.campaign.registered_campaign import facility_cluster, registered_devices
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.yaml_files import read_yaml

SUFFIX = ".cluster.yaml"
_KEYS = (
    *("cluster", "campaign", "results_only", "launcher", "devices"),
    *("pue", "carbon_intensity", "price"),
)
ELSEWHERE = "elsewhere"
"""Name of the cluster of registered runs, which may have been made on several."""
_ACCESS = {"partition", "gres", "memory_mb", "time_limit_min"}
"""What of a device is about its use on a cluster."""


def facts_text(campaign: Campaign, cluster: Cluster) -> str:
    """Text of the cluster file; InputError if the campaign ran on another cluster's devices."""
    lacking = sorted(campaign.devices() - set(cluster.devices))
    if lacking and not campaign.registered:
        raise InputError(
            f"{campaign.path}: the cluster '{cluster.name}' has no device {', '.join(lacking)}; "
            "--site names the cluster that it ran on"
        )
    devices = registered_devices(campaign, cluster) if campaign.registered else cluster.devices
    content: dict[str, Any] = {
        "cluster": ELSEWHERE if lacking else cluster.name,
        "campaign": f"campaigns/{campaign.name}.yaml",
        "results_only": True,
        "launcher": "false",
        "devices": {
            name: devices[name].model_dump(mode="json", exclude=_ACCESS, exclude_defaults=True)
            for name in sorted(campaign.devices())
        },
    }
    factors = facility_cluster(campaign, cluster)
    for key in _KEYS[-3:]:
        factor = getattr(factors, key)
        if factor:
            content[key] = dict(factor)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def read_facts(path: Path) -> Cluster:
    """Read the cluster file of an archive; InputError if it could start anything here."""
    content = read_yaml(path)
    for key in content:
        if key not in _KEYS:
            raise InputError(f"{path}: unknown key '{key}'; {one_of(key, _KEYS)}")
    cluster = parse_cluster(content, str(path))
    if cluster.launcher != "false" or not cluster.results_only:
        raise InputError(f"{path}: starts runs; expected launcher 'false' and results_only true")
    return cluster

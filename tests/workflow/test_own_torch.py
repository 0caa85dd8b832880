"""A plain checkout on a node with its own torch, and of the lock only what envs/gpu-node.txt names.

The node's Python is a venv with links to what such nodes have. The document's own commands run there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from documents import commands
from linked_install import link
from packaging.requirements import Requirement
from workspace import PROJECT, Workspace

from scalewatt.campaign.cluster import load_cluster, powers
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.provenance.package_lock import locked_versions, normalised
from scalewatt.targets.result_set import ResultSet

LISTED = PROJECT / "envs" / "gpu-node.txt"
PAGE = "docs/environments.md"
THERE = (
    *(
        "torch",
        "torchvision",
        "numpy",
        "pandas",
        "pyarrow",
        "scipy",
        "matplotlib",
        "seaborn",
        "pillow",
    ),
    *("psutil", "pyyaml", "jinja2", "scikit-learn", "nvidia-ml-py", "py-cpuinfo", "packaging"),
)
"""What a node with its own torch has, beside what these need."""
BROUGHT = {"pip", "setuptools"}
"""What a venv of Python 3.11 begins with."""
RUN = "resnet50-local-n002-lbs0016-full"
CLUSTER = Path("profiles/local/cluster.yaml")
RESULTS = Path("results/tiny")


def needs(package: str) -> set[str]:
    """What a package of this environment asks for, without extras."""
    asked = (Requirement(text) for text in requires(package) or [])
    return {
        normalised(one.name)
        for one in asked
        if one.marker is None or one.marker.evaluate({"extra": ""})
    }


def closure(names: set[str]) -> set[str]:
    """These packages with all that they need."""
    found: set[str] = set()
    while names:
        found |= names
        names = {need for name in names for need in needs(name)} - found
    return found


def test_the_list_for_nodes_has_versions_of_the_lock_and_all_that_its_packages_need() -> None:
    listed, lock = locked_versions(LISTED), locked_versions()
    assert listed.items() <= lock.items()
    there = closure(set(THERE))
    assert not there & set(listed), "a node has these itself"
    assert closure(set(listed)) - there == set(listed)


@dataclass(frozen=True)
class Node:
    """A plain checkout with the Python of a node."""

    checkout: Path

    @property
    def environment(self) -> dict[str, str]:
        """Without this environment's programs, and without an installed scalewatt."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {**kept, "PATH": f"{self.checkout / '.venv-node' / 'bin'}:/usr/bin:/bin"}

    def run(self, *command: str | Path) -> str:
        """Run a command in the checkout, which must succeed; what it printed."""
        done = subprocess.run(
            command, cwd=self.checkout, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def scalewatt(self, *arguments: str | Path) -> str:
        """Run a command of scalewatt as the document says."""
        words = (self.checkout / ".venv-node/bin/python", "-m", "scalewatt.cli", *arguments)
        return self.run("env", f"PYTHONPATH={self.checkout / 'src'}", *words)

    def link_what_is_there(self) -> None:
        """Make the Python of the node."""
        prefix = self.checkout / ".venv-node"
        self.run(sys.executable, "-m", "venv", prefix)
        (site,) = prefix.glob("lib/python*/site-packages")
        link(closure(set(THERE)) - BROUGHT, prefix, site)


def shown() -> list[str]:
    """The commands of the document's section."""
    text = (PROJECT / PAGE).read_text(encoding="utf-8")
    section = text.partition("## A node with its own torch\n")[2].partition("\n## ")[0]
    return [one.text for one in commands(PAGE) if one.text in section]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node with what the document installs."""
    made = Node(Workspace.create(tmp_path_factory.mktemp("node") / "checkout").path)
    made.link_what_is_there()
    download, venv, *rest = shown()
    assert re.match(r"python3 -m pip download .* -d wheels", download)
    assert venv == "python3 -m venv --system-site-packages .venv-node"
    made.run("bash", "-euc", "\n".join([download, *rest]))
    return made


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.lock
@pytest.mark.timeout(900)
def test_a_node_with_its_own_torch_has_neither_snakemake_nor_an_installed_scalewatt(
    node: Node,
) -> None:
    listed = json.loads(node.run("python", "-m", "pip", "list", "--format=json"))
    names = {normalised(one["name"]) for one in listed} - BROUGHT
    assert names == closure(set(THERE)) - BROUGHT | set(locked_versions(LISTED))
    size = sum(path.stat().st_size for path in (node.checkout / "wheels").iterdir())
    assert size < 64 * 2**20


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.lock
@pytest.mark.timeout(900)
def test_a_run_is_trained_accounted_and_drawn_in_a_plain_checkout(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = load_cluster(node.checkout / CLUSTER)
    campaign = load_campaign(node.checkout / "campaigns" / "tiny.yaml", cluster)
    definition = campaign.datasets()["scans"]
    folder = RESULTS / "runs" / RUN / "1"
    write(node, folder / "spec.json", run_spec(campaign, RUN, 1).text)
    node.scalewatt(
        *("prepare", "--definition", json.dumps(definition)),
        *("--folder", cluster.data_folder(definition)),
    )
    node.scalewatt("train", folder / "spec.json", "--cluster", CLUSTER, "--out", folder)
    traces, energy = RESULTS / "traces" / RUN / "1.parquet", RESULTS / "energy" / RUN / "1.parquet"
    for path in (traces, energy):
        (node.checkout / path).parent.mkdir(parents=True)
    rated = json.dumps(powers(cluster.devices["local"]))
    outputs = ("--traces", traces, "--energy", energy)
    node.scalewatt("account", folder, "--powers", rated, *outputs)
    assert "estimated" in node.scalewatt("energy", folder, "--cluster", CLUSTER)

    monkeypatch.chdir(node.checkout)  # a request's runs are those that are there
    wanted = ResultSet(campaign, cluster, cluster.devices, True, [], {})
    for name, out in (("runs", "tables"), ("figure2", "tables/figure2.parquet")):
        request = RESULTS / "requests" / f"{name}.json"
        write(node, request, json.dumps(wanted.request(name)))
        node.scalewatt(
            "table", "--definition", request, "--results", RESULTS, "--out", RESULTS / out
        )
    (row,) = pq.read_table(node.checkout / RESULTS / "tables" / "runs.parquet").to_pylist()
    assert row["gpus"] == 2 and row["energy_kwh"] > 0
    figure = RESULTS / "figures" / "figure2"
    node.scalewatt("figure", "2", "--table", RESULTS / "tables/figure2.parquet", "--out", figure)
    assert (node.checkout / f"{figure}.png").stat().st_size > 10_000


def write(node: Node, path: Path, text: str) -> None:
    """Write a file of the checkout, with its folder."""
    (node.checkout / path).parent.mkdir(parents=True, exist_ok=True)
    (node.checkout / path).write_text(text + "\n")

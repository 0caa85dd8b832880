"""The launchers of the profiles, as Slurm understands them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from minislurm import MiniSlurm, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(120)]

SITES = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize("profile", ["horeka", "slurm"])
def test_the_launcher_fills_nodes_and_sockets_one_after_the_other(
    slurm: MiniSlurm, tmp_path: Path, profile: str
) -> None:
    slurm.cancel_all()
    content = yaml.safe_load((SITES / f"{profile}.yaml").read_text())
    launcher = content["launcher"].format(gpus=8, nodes=2, ranks_per_node=4, cpus_per_rank=2)
    task = "echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURM_DISTRIBUTION"
    out = tmp_path / "out"
    slurm.command(
        *("sbatch", "--partition=accelerated", "--nodes=2", "--exclusive", f"--output={out}"),
        f"--wrap={launcher} sh -c '{task}'",
    )
    wait_for(lambda: out.exists() and slurm.idle(), "the end of the job")
    ranks = sorted(line.split() for line in out.read_text().splitlines())
    assert ranks == [[str(i), str(i // 4), str(i % 4), "block:block"] for i in range(8)]

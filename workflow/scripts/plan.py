"""Plan the whole campaign: time, energy and cost of its runs by the scaling model."""

from pathlib import Path

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.scaling.commands import plan_campaign, write_plan
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    cluster = parse_cluster(snakemake.config, "cluster")
    plan = plan_campaign(cluster, Path(snakemake.params.campaign))
    write_plan(plan, Path(snakemake.output[0]).with_suffix(""))

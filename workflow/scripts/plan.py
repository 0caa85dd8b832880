"""Plan the whole campaign: time, energy and cost of its runs by the scaling model."""

from pathlib import Path

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.scaling.plan import load_plan, make_plan, write_plan
from scalewatt.targets.step import logged

with logged(snakemake) as table:
    cluster = parse_cluster(snakemake.config, "cluster")
    campaign, model = load_plan(cluster, Path(snakemake.params.campaign), None)
    write_plan(make_plan(campaign, cluster, model), table.with_suffix(""))

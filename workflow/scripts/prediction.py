"""Compare the runs that were measured with their prediction."""

from pathlib import Path

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.scaling.prediction import write_prediction
from scalewatt.targets.step import logged

with logged(snakemake) as table:
    cluster = parse_cluster(snakemake.config, "cluster")
    write_prediction(table.parents[1], Path(snakemake.params.campaign), cluster, table)

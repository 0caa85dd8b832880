"""Check the paper's claims on a campaign's results."""

from pathlib import Path

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.claims.check_claims import check_claims
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    stem = Path(snakemake.output[0]).with_suffix("")
    cluster = parse_cluster(snakemake.config, "cluster")
    check_claims(stem.parents[1], Path(snakemake.params.campaign), cluster, stem)

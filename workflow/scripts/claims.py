"""Check the paper's claims on a campaign's results."""

from pathlib import Path

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.claims.check_claims import check_claims
from scalewatt.targets.step import logged

with logged(snakemake) as table:
    cluster, stem = parse_cluster(snakemake.config, "cluster"), table.with_suffix("")
    check_claims(table.parents[1], Path(snakemake.params.campaign), cluster, stem)

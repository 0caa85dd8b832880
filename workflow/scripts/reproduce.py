"""Compare environment, files and the repeated run with what was recorded; print what differs."""

import sys
from pathlib import Path

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.reproduction.reproduce import as_text, reproduce

cluster = parse_cluster(snakemake.config, "cluster")
results = Path(snakemake.params.results)
done = reproduce(cluster, Path(snakemake.params.campaign), results)
text = as_text(done)
Path(snakemake.log[0]).write_text(f"{text}\n", encoding="utf-8")
print(text, flush=True)
sys.exit(done.exit_code)

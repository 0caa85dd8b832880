"""Compare environment, files and the repeated run with what was recorded; print what differs."""

import sys
from pathlib import Path

from scalewatt.reproduction.reproduce import reproduce

params = snakemake.params
paths = Path(params.campaign), Path(params.results)
text, exit_code = reproduce(snakemake.config, *paths, params.snakemake)
Path(snakemake.log[0]).write_text(f"{text}\n", encoding="utf-8")
print(text, flush=True)
sys.exit(exit_code)

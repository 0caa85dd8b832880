"""Write Table 1 or the table of variants as text: Markdown or LaTeX."""

from pathlib import Path

from scalewatt.results.text.text_tables import table_text
from scalewatt.targets.step import logged

with logged(snakemake) as out:
    out.write_text(table_text(Path(snakemake.input[0]), out.suffix), encoding="utf-8")

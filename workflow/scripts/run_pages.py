"""Draw a page for each run of a configuration."""

from pathlib import Path

from scalewatt.figures.run_page import save_pages
from scalewatt.results.figures.run_page_table import read_pages
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    results = Path(snakemake.output[0]).parents[2]
    pages = read_pages(
        results,
        snakemake.wildcards.configuration,
        snakemake.params.repeats,
        snakemake.params.excluded,
    )
    save_pages(pages, results)

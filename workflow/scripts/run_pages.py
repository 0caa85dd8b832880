"""Draw a page for each run of a configuration."""

from scalewatt.figures.run_page import save_pages
from scalewatt.targets.step import logged

with logged(snakemake) as folder:
    results, params = folder.parents[2], snakemake.params
    given = snakemake.wildcards.configuration, params.repeats, params.excluded
    save_pages(results, *given)

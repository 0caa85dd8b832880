"""Write the report from tables and figures."""

from pathlib import Path

from scalewatt.report.build_report import write_report
from scalewatt.report.results import Definition
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    page = Path(snakemake.output[0])
    write_report(page.parent, page, Definition(**snakemake.params.definition))

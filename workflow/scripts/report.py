"""Write the report from tables and figures."""

from scalewatt.report.build_report import write_report
from scalewatt.report.definition import Definition
from scalewatt.targets.step import logged

with logged(snakemake) as page:
    write_report(page.parent, page, Definition(**snakemake.params.definition))

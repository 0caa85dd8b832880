# Figures, each from its own table and its own module, and the report.
#   in   tables/figureN.parquet, src/scalewatt/figures/figureN.py and what all figures share
#   out  figures/figureN.{pdf,svg,png} and .csv (exactly the plotted points); report.html
from scalewatt.report.report_request import report_definition

NUMBERS = [n for n in range(1, 8) if f"figure{n}" in FIGURES]


def figure_files(number):
    return multiext(f"{RESULTS}/figures/figure{number}", ".pdf", ".svg", ".png", ".csv")


for number in NUMBERS:

    rule:
        name:
            f"draw_figure{number}"
        input:
            table=f"{RESULTS}/tables/figure{number}.parquet",
            code=code_of("figures.draw_figure", f"figures.figure{number}"),
        output:
            report(
                f"{RESULTS}/figures/figure{number}.svg",
                caption=f"../report/figure{number}.rst",
                category="Figures",
                labels={"figure": f"Figure {number}"},
            ),
            f"{RESULTS}/figures/figure{number}.pdf",
            f"{RESULTS}/figures/figure{number}.png",
            f"{RESULTS}/figures/figure{number}.csv",
        priority: 60
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            number=number,
            stem=f"{RESULTS}/figures/figure{number}",
        message:
            f"draw figure {number}"
        shell:
            "scalewatt figure {params.number} --table {input.table:q} --out {params.stem:q}"


for number in range(1, 8):

    rule:
        name:
            f"figure{number}"
        input:
            where_named(f"figure{number}", figure_files(number)),


rule figures:
    input:
        [figure_files(number) for number in NUMBERS],
        MORE_FIGURES,
        VARIANTS_FIGURE if VARIANTS else [],


REPORT_CODE = code_of("report.build_report") + [
    str(path)
    for path in sorted(Path("src/scalewatt/report").iterdir())
    if path.suffix in (".css", ".js", ".j2")
]


rule report:
    input:
        provenance=files_of(
            runs_of(CAMPAIGN.configurations),
            "runs/{configuration}/{repeat}/provenance.json",
        ),
        tables=rules.tables.input,
        table1=NAMED_TABLE1,
        figures=rules.figures.input,
        variants=VARIANTS_TABLE if VARIANTS else [],
        claims=CLAIMS,
        plan=planned(PLAN),
        prediction=predicted([*PREDICTION_TABLE, *PREDICTION]),
        code=REPORT_CODE,
    output:
        f"{RESULTS}/report.html",
    retries: 0
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=canonical(
            report_definition(
                CAMPAIGN,
                CLUSTER,
                basis(CLUSTER, [DEVICES[name] for name in sorted(CAMPAIGN.devices())]),
                RESULTS_ONLY,
                REMEASURED,
            )
        ),
    message:
        "report"
    shell:
        "scalewatt report --definition {params.definition:q} --results {RESULTS:q} --out {output:q}"

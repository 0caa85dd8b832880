# Variants: one training done in several ways, each beside its baseline, as a table and a figure.
# Only where the campaign has the key figures.variants.
#   in   spec, history, provenance and energy of the variants' runs
#   out  tables/variants.{parquet,csv,md}, figures/variants.{pdf,svg,png,csv}

VARIANTS_TABLE = multiext(f"{RESULTS}/tables/variants", ".parquet", ".csv", ".md")
VARIANTS_FIGURE = multiext(
    f"{RESULTS}/figures/variants", ".svg", ".pdf", ".png", ".csv"
)
VARIANTS = VARIANTS_TABLE + VARIANTS_FIGURE if "variants" in CAMPAIGN.figures else []


if VARIANTS:

    rule variants_table:
        input:
            table_inputs("variants"),
            code_of("results.build"),
        output:
            report(
                VARIANTS_TABLE[1], caption="../report/variants.rst", category="Tables"
            ),
            VARIANTS_TABLE[0],
            VARIANTS_TABLE[2],
        priority: 60
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            definition=lambda wildcards: definition_of("variants"),
        message:
            "table of variants"
        shell:
            "scalewatt table --definition {params.definition:q} --results {RESULTS:q}"
            " --out {output[1]:q}"

    rule draw_variants:
        input:
            table=VARIANTS_TABLE[0],
            code=code_of("figures.draw_figure", "figures.variants"),
        output:
            report(
                VARIANTS_FIGURE[0],
                caption="../report/variants.rst",
                category="Figures",
                labels={"figure": "Variants"},
            ),
            VARIANTS_FIGURE[1:],
        priority: 60
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            stem=f"{RESULTS}/figures/variants",
        message:
            "draw variants"
        shell:
            "scalewatt figure variants --table {input.table:q} --out {params.stem:q}"


def variants_files(wildcards):
    if not VARIANTS:
        refuse(
            f"{CAMPAIGN.path}: has no key 'figures.variants', so there is nothing to compare; add for"
            " example variants: {series: [plain, fast], baselines: [plain]}, or take"
            " --config campaign=campaigns/variants.yaml"
        )
    return VARIANTS


rule variants:
    input:
        variants_files,

# Results: runs' energy and histories to tables. A table's definition (which runs, in which series,
# under which label) is its parameter: only a change of it, or of its runs, builds it again.
#   in   spec, history, provenance and energy of the table's own runs
#   out  tables/*.parquet and .csv; tables/table1.{md,tex}


def runs_of_figure(figure):
    out = [[one["configuration"], one["repeat"]] for one in EXCLUDED]
    runs = [
        run for run in runs_of(CAMPAIGN.figure_configurations(figure)) if run not in out
    ]
    if figure == "figure1":  # of the campaign alone
        return []
    if figure == "figure5":  # of one run of each configuration
        return list(
            {
                configuration: [configuration, r] for configuration, r in runs[::-1]
            }.values()
        )
    return runs


def definition_of(figure):
    runs = runs_of_figure(figure)
    excluded = [] if figure == "figure1" else EXCLUDED  # that has no run
    definition = table_definition(CAMPAIGN, figure, runs, excluded)
    return canonical({**definition, "facility": facility()})


def table_inputs(figure):
    traced = [
        "traces/{configuration}/{repeat}.parquet",
        "energy/{configuration}/{repeat}.devices.parquet",
    ]
    names = [*ROW_FILES, *(traced if figure == "figure5" else [])]
    overlaid = CAMPAIGN.figures[figure].get("overlay") == "published"
    published = ["reference/published_results.csv"] if overlaid else []
    return [*files_of(runs_of_figure(figure), *names), *published]


def lacks_traces(figure):
    """Whether a campaign was imported without what figure 5 is made from, and without its table."""
    if not CAMPAIGN.imported or figure != "figure5":
        return False
    return not (
        came_with([f"{RESULTS}/tables/{figure}.parquet"])
        or came_with(table_inputs(figure))
    )


# What there is of the campaign's `figures`: all, but for what an archive cannot give.
FIGURES = [name for name in CAMPAIGN.figures if not lacks_traces(name)]
LEFT_OUT = [name for name in CAMPAIGN.figures if lacks_traces(name)]


def example_of(name):
    """An entry of the campaign that would define a figure, or Table 1."""
    series = list(CAMPAIGN.series)[:2]
    if name not in ("figure5", "table1"):
        return f"{name}: {{series: [{', '.join(series)}]}}"
    gpus = next(iter(CAMPAIGN.series[series[0]].points))
    return f"{name}: {{points: [{{series: {series[0]}, gpus: {gpus}}}]}}"


def where_named(name, files):
    """Input of a target, which ends Snakemake where the campaign does not name what it makes."""

    def found(wildcards):
        if name not in CAMPAIGN.figures:
            refuse(
                f"{CAMPAIGN.path}: has no key 'figures.{name}', so there is nothing to"
                f" {'make' if name == 'table1' else 'draw'}; add for example {example_of(name)}"
            )
        if name in LEFT_OUT:
            refuse(
                f"{name}: is drawn from power traces, and {CAMPAIGN.path} was imported without them;"
                " allowed: an archive of `scalewatt export --traces`"
            )
        return files

    return found


TABLES = ("runs", "configurations", "scaling", "comparisons")


rule tables:
    input:
        [f"{RESULTS}/tables/{name}.parquet" for name in TABLES],


rule runs_table:
    input:
        files_of(runs_of(CAMPAIGN.configurations), *ROW_FILES),
        IDLE_TABLE[:1],
        code_of("results.build"),
    output:
        [multiext(f"{RESULTS}/tables/{name}", ".parquet", ".csv") for name in TABLES],
    retries: 0
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=lambda wildcards: canonical(
            {
                **runs_definition(
                    CAMPAIGN, runs_of(CAMPAIGN.configurations), EXCLUDED
                ),
                "facility": facility(),
                **({"idle": True} if IDLE_TABLE else {}),
            }
        ),
    message:
        "tables of runs and configurations"
    shell:
        "scalewatt table --definition {params.definition:q} --results {RESULTS:q}"
        " --out $(dirname {output[0]:q})"


rule figure_table:
    input:
        lambda wildcards: table_inputs(f"figure{wildcards.number}"),
        code_of("results.build"),
    output:
        multiext(f"{RESULTS}/tables/figure{{number}}", ".parquet", ".csv"),
    priority: 60
    retries: 0
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=lambda wildcards: definition_of(f"figure{wildcards.number}"),
    message:
        "table of figure {wildcards.number}"
    shell:
        "scalewatt table --definition {params.definition:q} --results {RESULTS:q} --out {output[0]:q}"


TABLE1 = multiext(f"{RESULTS}/tables/table1", ".parquet", ".csv", ".md", ".tex")


if "table1" in CAMPAIGN.figures:

    rule table1_files:
        input:
            table_inputs("table1"),
            code_of("results.build"),
        output:
            report(TABLE1[1], caption="../report/table1.rst", category="Tables"),
            TABLE1[0],
            TABLE1[2:],
        priority: 60
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            definition=lambda wildcards: definition_of("table1"),
        message:
            "table 1"
        shell:
            "scalewatt table --definition {params.definition:q} --results {RESULTS:q}"
            " --out {output[1]:q}"


NAMED_TABLE1 = TABLE1 if "table1" in CAMPAIGN.figures else []


rule table1:
    input:
        where_named("table1", TABLE1),

# Figures beside the paper's: where the energy goes (breakdown), what learning costs (learning, pareto),
# each where the campaign's `figures` names it; and a page for each run.
#   in   spec, history, provenance and energy of their own runs; of pages also traces and events
#   out  tables/<name>.{parquet,csv}, figures/<name>.{svg,pdf,png,csv}, figures/runs/<configuration>/

import re

MORE = [
    name for name in ("breakdown", "learning", "pareto") if name in CAMPAIGN.figures
]


def more_files(name):
    return multiext(f"{RESULTS}/figures/{name}", ".svg", ".pdf", ".png", ".csv")


def more_table_inputs(name):
    epochs = ["energy/{configuration}/{repeat}.epochs.parquet"]
    found = files_of(
        runs_of_figure(name), *ROW_FILES, *(epochs if name == "learning" else [])
    )
    return found + (IDLE_TABLE[:1] if name == "breakdown" else [])


def more_definition(name):
    idle = {"idle": True} if name == "breakdown" and IDLE_TABLE else {}
    return canonical({**json.loads(definition_of(name)), **idle})


for name in MORE:

    rule:
        name:
            f"{name}_table"
        input:
            more_table_inputs(name),
            code_of("results.build"),
        output:
            multiext(f"{RESULTS}/tables/{name}", ".parquet", ".csv"),
        priority: 60
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            definition=more_definition(name),
        message:
            f"table of {name}"
        shell:
            "scalewatt table --definition {params.definition:q} --results {RESULTS:q}"
            " --out {output[0]:q}"

    rule:
        name:
            f"draw_{name}"
        input:
            table=f"{RESULTS}/tables/{name}.parquet",
            code=code_of("figures.draw_figure", f"figures.{name}"),
        output:
            report(
                more_files(name)[0],
                caption=f"../report/{name}.rst",
                category="Figures",
                labels={"figure": name.capitalize()},
            ),
            more_files(name)[1:],
        priority: 60
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            figure=name,
            stem=f"{RESULTS}/figures/{name}",
        message:
            f"draw {name}"
        shell:
            "scalewatt figure {params.figure} --table {input.table:q} --out {params.stem:q}"


rule breakdown:
    input:
        where_named("breakdown", more_files("breakdown")),


rule learning:
    input:
        where_named("learning", more_files("learning")),


rule pareto:
    input:
        where_named("pareto", more_files("pareto")),


MORE_FIGURES = [path for name in MORE for path in more_files(name)]


# --- a page for each run --------------------------------------------------------------------------

PAGE_FILES = (
    *ROW_FILES,
    "runs/{configuration}/{repeat}/events.parquet",
    "traces/{configuration}/{repeat}.parquet",
)


def page_repeats(configuration):
    """Repeats with a page; of an imported campaign those it came with, or whose traces it has."""
    runs = runs_of([configuration])
    if CAMPAIGN.imported and not came_with(files_of(runs, *PAGE_FILES)):
        runs = [run for run in runs if came_with(page_files(run[0], [run[1]]))]
    return tuple(repeat for _, repeat in runs)


def page_files(configuration, repeats):
    return [
        f"{RESULTS}/figures/runs/{configuration}/{repeat}.{suffix}"
        for repeat in repeats
        for suffix in ("pdf", "svg", "png")
    ]


PAGES = {id_: page_repeats(id_) for id_ in CAMPAIGN.configurations}


if CAMPAIGN.imported and not workflow.remote_exec:
    lost = len(runs_of(CAMPAIGN.configurations)) - sum(map(len, PAGES.values()))
    left_out = [*LEFT_OUT, *([f"pages of {lost} runs"] if lost else [])]
    if left_out:
        print(
            f"scalewatt: {CAMPAIGN.path}: imported without traces, so left out: {', '.join(left_out)}",
            file=sys.stderr,
            flush=True,
        )


# One job draws all pages of a configuration, and configurations with the same repeats share a rule.
PAGE_RULES = {"_".join(map(str, own)): own for own in PAGES.values() if own}
for numbers, repeats in PAGE_RULES.items():

    rule:
        name:
            f"pages_of_runs_{numbers}"
        input:
            lambda wildcards, repeats=repeats: files_of(
                [[wildcards.configuration, repeat] for repeat in repeats], *PAGE_FILES
            ),
            code=code_of("figures.run_page", "results.figures.run_page_table"),
        output:
            page_files("{configuration}", repeats),
        wildcard_constraints:
            configuration="|".join(
                re.escape(id_) for id_, own in PAGES.items() if own == repeats
            ),
        priority: 40
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            repeats=repeats,
            excluded=lambda wildcards: canonical(
                {
                    str(one["repeat"]): one["reason"]
                    for one in EXCLUDED
                    if one["configuration"] == wildcards.configuration
                }
            ),
        message:
            "pages of the runs of {wildcards.configuration}"
        shell:
            "scalewatt run-pages {wildcards.configuration:q} {params.repeats}"
            " --results {RESULTS:q} --excluded {params.excluded:q}"


RUN_PAGES = [
    path for id_, repeats in PAGES.items() for path in page_files(id_, repeats)
]


rule run_pages:
    input:
        RUN_PAGES,

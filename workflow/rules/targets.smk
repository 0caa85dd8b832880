# Targets: what a user may ask for by name, and its files (docs/figures.md). `all` is in the Snakefile.
from scalewatt.campaign.campaign_file import Figures

PREDICTED = PREDICTION + RESULT_SET.figure_files("prediction")
PAGES = expand(f"{RESULTS}/figures/runs/{{id}}", id=RESULT_SET.pages)
TARGETS = {
    "prepare_imagenet": RESULT_SET.datasets("imagenet"),
    "prepare_era5": RESULT_SET.datasets("era5"),
    "idle_probe": required("idle", RESULT_SET.idle_table),
    "tables": TABLES,
    "claims": CLAIMS,
    "plan": required("plan", PLAN),
    "prediction": required("prediction", PREDICTED),
    "figures": [RESULT_SET.figure_files(name) for name in FIGURES if name != "table1"],
    "run_pages": PAGES,
    **{
        figure: required(figure, RESULT_SET.figure_files(figure))
        for figure in Figures.model_fields  # figure1 … figure7, table1, breakdown, …
    },
}

for target, files in TARGETS.items():

    rule:
        name:
            target
        input:
            files,

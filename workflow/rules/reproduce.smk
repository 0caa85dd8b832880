# Whether the results can be reproduced: the manifest, which records what they were; one run that is repeated;
# and the table of what differs. Nothing of the campaign itself is an input or an output of it but the
# manifest: a Snakemake of its own makes tables and figures again in a temporary folder.
MANIFEST = [f"{RESULTS}/SHA256SUMS", f"{RESULTS}/manifest.json"]
AGAIN_COMMAND = [sys.executable, "-m", "snakemake"]
if WITH_CONDA:
    CONDA_ENVS = workflow.deployment_settings.conda_prefix or ".snakemake/conda"
    AGAIN_COMMAND += ["--sdm", "conda", "--conda-prefix", os.path.abspath(CONDA_ENVS)]


rule manifest:
    input:
        SHOWN,
        PAGES,
        RESULT_SET.idle_table,
    output:
        MANIFEST,
    log:
        f"{LOGS}/manifest.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "manifest of tables and figures"
    script:
        "../scripts/manifest.py"


# It has no output, so that it runs whenever it is asked for, and its table stays if it fails.
rule reproduce:
    input:
        files_of_rerun,
    log:
        f"{LOGS}/reproduce.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
        results=str(Path(RESULTS).parent),
        snakemake=AGAIN_COMMAND,
    message:
        "compare environment, files and the repeated run with what was recorded"
    script:
        "../scripts/reproduce.py"

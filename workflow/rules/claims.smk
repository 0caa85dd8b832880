# The paper's claims, checked on the campaign's results. Without a model of the paper they are no
# part of `all`, of the report and of the manifest; the target `claims` makes them all the same.
#   in   tables/{runs,configurations}.parquet, tables/figure5.parquet where the
#        campaign has it, provenance.json of the runs, the tables of reference/ that decide verdicts
#   out  tables/claims.{parquet,csv,md,json}
from scalewatt.campaign.table_definitions import runs_definition
from scalewatt.provenance.versions import CLAIMS_TABLES
from scalewatt.targets.result_set import CLAIMS_ENDINGS

CLAIMS = multiext(f"{RESULTS}/tables/claims", *CLAIMS_ENDINGS)

CLAIMS_DATA = [str(shipped(f"reference/{name}")) for name in CLAIMS_TABLES]


rule claims_table:
    input:
        rules.tables.input,
        [f"{RESULTS}/tables/figure5.parquet"] if "figure5" in FIGURES else [],
        RESULT_SET.files(ALL_RUNS, "runs/{configuration}/{repeat}/provenance.json"),
        CLAIMS_DATA,
    output:
        CLAIMS,
    log:
        f"{LOGS}/claims_table.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
        definition=lambda wildcards: runs_definition(CAMPAIGN.whole, [], []),
        version=versions.CLAIMS,
    message:
        "claims of the paper"
    script:
        "../scripts/claims.py"


rule claims:
    input:
        CLAIMS,

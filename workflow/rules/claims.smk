# The paper's claims, checked on the campaign's results. Without a model of the paper they are no
# part of `all`, of the report and of the manifest; the target `claims` makes them all the same.
#   in   tables/{runs,configurations}.parquet, tables/figure5.parquet where the
#        campaign has it, provenance.json of the runs, the tables of reference/ that decide verdicts
#   out  tables/claims.{parquet,csv,md,json}
from scalewatt.campaign.table_requests import runs_definition
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
        code_of("claims.check_claims"),
    output:
        report(CLAIMS[0], caption="../report/claims.rst", category="Tables"),
        CLAIMS[1:],
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
        stem=f"{RESULTS}/tables/claims",
        definition=lambda wildcards: canonical(runs_definition(CAMPAIGN.whole, [], [])),
    message:
        "claims of the paper"
    shell:
        "scalewatt claims --results {RESULTS:q} --campaign {params.campaign:q}"
        " --cluster {CLUSTER_JSON:q} --out {params.stem:q} > /dev/null"


rule claims:
    input:
        CLAIMS,

#!/usr/bin/env bash
# Snakemake runs this once in a new environment of envs/analysis.yaml, in the workflow's folder.
# It tells environments apart by that file and this one alone. So what is installed is named here by its
# SHA-256: another lock is another environment. envs/renew.sh writes the sums (make lock runs it).
set -euo pipefail

if [ ! -e envs/lock.txt ]; then
  echo "$PWD: has no envs/lock.txt; start Snakemake in the checkout's folder" >&2
  exit 1
fi
if ! sha256sum --check --quiet >&2 <<'END'; then
4bc7944a38671d1500aed04ca9a004a252e32b37a105fcd0153d8ffb15d3808e  envs/lock.txt
a57808673d4cc32119bfcb01ae1e549ecd9abdbfb39a8ecdeebe747dc2799efb  envs/analysis.in
END
  echo "envs/analysis.post-deploy.sh: was made for other files; expected these sums; run envs/renew.sh" >&2
  exit 1
fi
envs/install.sh "$CONDA_PREFIX" analysis

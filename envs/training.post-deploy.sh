#!/usr/bin/env bash
# Snakemake runs this once in a new environment of envs/training.yaml, in the workflow's folder.
# It tells environments apart by that file and this one alone. So what is installed is named here by its
# SHA-256: another lock is another environment. envs/renew.sh writes the sums (make lock runs it).
set -euo pipefail

if [ ! -e envs/lock.txt ]; then
  echo "$PWD: has no envs/lock.txt; start Snakemake in the checkout's folder" >&2
  exit 1
fi
if ! sha256sum --check --quiet >&2 <<'END'; then
510fa31ab83e693fe3da5ab594c622e5b4c7e617a9e714a41ed641132be71f1e  envs/lock.txt
END
  echo "envs/training.post-deploy.sh: was made for other files; expected these sums; run envs/renew.sh" >&2
  exit 1
fi
envs/install.sh "$CONDA_PREFIX" training

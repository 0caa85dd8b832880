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
033e958d77ae5e485096a3de6ceb9ef56c8307371f5ee10991eb824312fc6265  envs/lock.txt
END
  echo "envs/training.post-deploy.sh: was made for other files; expected these sums; run envs/renew.sh" >&2
  exit 1
fi
envs/install.sh "$CONDA_PREFIX" training

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
ed489e18d9ddcb49bbe1ff50579cdc4aefd724da1f4514f4064bffb32035e6f2  envs/lock.txt
1be84b0a8f4cf5ddd40d672ae8cebd578de6c1b96879ec95093cd030977ed4e8  envs/analysis.in
END
  echo "envs/analysis.post-deploy.sh: was made for other files; expected these sums; run envs/renew.sh" >&2
  exit 1
fi
envs/install.sh "$CONDA_PREFIX" analysis

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
4bdbce8df17037f3c89368dc9811b70b4eb393d38e94d38b23920982528e57dc  envs/lock.txt
b00cca9fea4496c53d01b1e46e29c9295bcd94f51929f40a95e251b137b457f2  envs/analysis.in
END
  echo "envs/analysis.post-deploy.sh: was made for other files; expected these sums; run envs/renew.sh" >&2
  exit 1
fi
envs/install.sh "$CONDA_PREFIX" analysis

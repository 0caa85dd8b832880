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
5aaa9258a82ae07558fdb54135dcd6564db6d64a42f0e5879a373c6322c028ed  envs/lock.txt
f25decbc3913c60fe9df7b319a04fc8ed027d7a9352aba8722594c74948d11b3  envs/analysis.in
END
  echo "envs/analysis.post-deploy.sh: was made for other files; expected these sums; run envs/renew.sh" >&2
  exit 1
fi
envs/install.sh "$CONDA_PREFIX" analysis

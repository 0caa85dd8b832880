#!/usr/bin/env bash
# Write the hashes of the lock, and of what is taken from it, into envs/*.post-deploy.sh.
# make lock runs this; run it alone after a change of envs/analysis.in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for script in envs/*.post-deploy.sh; do
  while IFS= read -r line; do
    if [[ "$line" =~ ^[0-9a-f]{64}\ \ (.+)$ ]]; then
      sha256sum "${BASH_REMATCH[1]}"
    else
      printf '%s\n' "$line"
    fi
  done <"$script" >"$script.new"
  if cmp --silent "$script" "$script.new"; then
    rm "$script.new"
  else
    chmod --reference="$script" "$script.new"
    mv "$script.new" "$script"
  fi
done

#!/usr/bin/env bash
# The one way to install scalewatt: the packages of envs/lock.txt, hashes checked, and this checkout.
#   envs/install.sh PREFIX training     all of the lock
#   envs/install.sh PREFIX analysis     what envs/analysis.in needs of it: no torch
# PREFIX is an environment with Python 3.11 and pip: a venv (make setup, envs/scalewatt.def) or conda's
# (envs/*.post-deploy.sh). What was installed is said, last of all, in PREFIX/scalewatt-environment.json.
set -euo pipefail

refuse() {
  echo "envs/install.sh: $1" >&2
  exit 1
}

[ $# = 2 ] || refuse "expected PREFIX training|analysis"
case "$2" in training | analysis) name="$2" ;; *) refuse "unknown environment '$2'; allowed: training, analysis" ;; esac
[ -x "$1/bin/python" ] || refuse "$1 has no bin/python; expected an environment with Python 3.11 and pip"
prefix="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -f pyproject.toml ] || refuse "$PWD is no checkout of scalewatt; start it in one"
python="$prefix/bin/python"
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
  refuse "$python is not Python 3.11, for which envs/lock.txt was made"

stamp="$prefix/scalewatt-environment.json"
parts="$(mktemp -d)"
trap 'rm -rf "$parts"' EXIT
rm -f "$stamp"

# What lies in the user's own folder is not part of the environment.
export PYTHONNOUSERSITE=1
unset PYTHONPATH

# uv comes from the same lock, by its hash; then it installs the rest.
sed -n '/^uv==/,/[^\\]$/p' envs/lock.txt >"$parts/uv.txt"
"$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$parts/uv.txt"
if [ "$name" = training ]; then
  cp envs/lock.txt "$parts/packages.txt"
else
  "$python" envs/subset.py envs/lock.txt envs/analysis.in >"$parts/packages.txt"
fi
uv=("$prefix/bin/uv" pip install --quiet --python "$python")
"${uv[@]}" --require-hashes --compile-bytecode -r "$parts/packages.txt"
"${uv[@]}" --no-deps --no-build-isolation -e .

sum="$(sha256sum envs/lock.txt)"
printf '{"environment": "%s", "lock_sha256": "%s"}\n' "$name" "${sum%% *}" >"$stamp.new"
mv "$stamp.new" "$stamp"

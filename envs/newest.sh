#!/usr/bin/env bash
# Set up PREFIX with another Python and, in place of the lock's versions, the newest that
# envs/requirements.in allows, the newest torch among them: to see whether the code runs there
# (make test-versions). Results made with it are not comparable with those of the lock.
#   envs/newest.sh python3.13 PREFIX
set -euo pipefail

[ $# = 2 ] || { echo "envs/newest.sh: expected PYTHON PREFIX" >&2; exit 1; }
python="$(command -v "$1")" || { echo "envs/newest.sh: $1 is not installed" >&2; exit 1; }
prefix="$(realpath -m "$2")"
"$python" -m venv --clear "$prefix"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONNOUSERSITE=1
unset PYTHONPATH
"$prefix/bin/python" -m pip install --quiet --disable-pip-version-check uv
sed -E 's/^(torch|torchvision)==.*/\1/' envs/requirements.in >"$prefix/requirements.in"
uv=("$prefix/bin/uv" pip install --quiet --python "$prefix/bin/python")
"${uv[@]}" -r "$prefix/requirements.in"
"${uv[@]}" --no-deps --no-build-isolation -e .

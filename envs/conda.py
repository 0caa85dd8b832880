"""Print a conda environment: an extra's packages in the lock's versions, with the hashes of their wheels.

python envs/conda.py train > envs/training.yaml
"""

import subprocess
import sys
import tomllib

COMPILE = """uv pip compile --quiet --format pylock.toml --no-header
    --python-version 3.11 --python-platform x86_64-manylinux_2_28
    --constraints envs/lock.txt pyproject.toml --extra"""
HEADER = """# make lock wrote this: the packages of `pip install '.[{extra}]'`, as envs/lock.txt has them.
# The code is that of the checkout: docs/guide/environments.md.
channels:
  - conda-forge
  - nodefaults
variables:
  PYTHONNOUSERSITE: "1" # what lies in ~/.local is not part of the environment
dependencies:
  - python=3.11.*
  - pip
  - pip:"""


def main(extra: str) -> None:
    """Print the environment of an extra."""
    text = subprocess.run([*COMPILE.split(), extra], check=True, capture_output=True, text=True)
    print(HEADER.format(extra=extra))
    for package in tomllib.loads(text.stdout)["packages"]:
        files = package.get("wheels") or [package["sdist"]]
        hashes = [f"--hash=sha256:{file['hashes']['sha256']}" for file in files]
        print(f"      - {package['name']}=={package['version']} {' '.join(hashes)}")


if __name__ == "__main__":
    main(sys.argv[1])

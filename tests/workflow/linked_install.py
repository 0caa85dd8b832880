"""In place of envs/install.sh: the same packages, as links to those of this Python.

    python linked_install.py PREFIX training|analysis

The environment has what the lock says it has and nothing else, in a second and without a package index.
Its `scalewatt` notes each call in PREFIX/ran.txt.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from importlib.metadata import distributions
from pathlib import Path

RECORDED = """#!{prefix}/bin/python
import shlex, sys
with open("{prefix}/ran.txt", "a") as ran:
    print(shlex.join(sys.argv[1:]), file=ran)
from scalewatt.cli import main
sys.exit(main())
"""


def packages_of(name: str, envs: Path) -> set[str]:
    """The packages of an environment, by the script that install.sh asks."""
    known = runpy.run_path(str(envs / "subset.py"))
    lock = (envs / "lock.txt").read_text()
    wanted = list(known["entries_of"](lock))
    if name == "analysis":
        wanted = known["names_of"]((envs / "analysis.in").read_text())
    return set(known["subset"](lock, wanted))


def link(packages: set[str], prefix: Path, site: Path) -> None:
    """Link the packages' files, those of a package's folder at once; programs are left out."""
    for distribution in distributions():
        if distribution.name.lower().replace("_", "-").replace(".", "-") not in packages:
            continue
        for file in distribution.files or []:
            here = Path(os.path.abspath(distribution.locate_file(file)))
            if file.parts[0] != "..":
                here = Path(str(distribution.locate_file(file.parts[0])))
                target = site / here.name
            else:  # such as the libraries of MPI
                target = prefix / here.relative_to(sys.prefix)
            if not (target.is_symlink() or "bin" in here.parts or here.name == "__pycache__"):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(here)


def main(prefix: Path, name: str) -> None:
    """Fill the environment at `prefix`, in the checkout's folder."""
    version = ".".join(map(str, sys.version_info[:2]))
    site = prefix / "lib" / f"python{version}" / "site-packages"
    link(packages_of(name, Path("envs")), prefix, site)
    (site / "checkout.pth").write_text(f"{Path.cwd() / 'src'}\n")
    command = prefix / "bin" / "scalewatt"
    command.write_text(RECORDED.format(prefix=prefix))
    command.chmod(0o755)
    sum_ = hashlib.sha256(Path("envs", "lock.txt").read_bytes()).hexdigest()
    stamp = {"environment": name, "lock_sha256": sum_}
    (prefix / "scalewatt-environment.json").write_text(json.dumps(stamp))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

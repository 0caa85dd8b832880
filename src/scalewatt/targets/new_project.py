"""A project of one's own: a folder from which Snakemake runs campaigns with the installed scalewatt."""

from __future__ import annotations

import re
import shutil
import tempfile
from functools import partial
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT

COPIED = (
    "config.yaml",
    "campaigns",
    "docs",
    "profiles/horeka",
    "profiles/local",
    "profiles/simulate",
    "profiles/slurm",
)
SNAKEFILE = """\
# The workflow of the installed scalewatt: campaigns, profiles and results are this folder's.
#   snakemake --profile profiles/local all       the demo, on this machine
#   snakemake --profile profiles/simulate all    the paper's campaign, simulated
from scalewatt.common.schema_validation import PROJECT_ROOT


include: str(PROJECT_ROOT / "Snakefile")
"""
README = """\
# A scalewatt project

What training neural networks on many GPUs takes, in energy and time: campaigns, profiles of clusters
and results are this folder's; the workflow is the installed scalewatt's.

| file | holds |
| --- | --- |
| `campaigns/` | campaigns: models, series, figures ([a first campaign](docs/first-campaign.md)) |
| `config.yaml` | the paper's campaign ([docs/paper.md](docs/paper.md)) |
| `profiles/` | one folder for each cluster ([your cluster](docs/your-cluster.md)) |
| `docs/` | [all documents](docs/index.md), as of the installed version |

```sh
snakemake --profile profiles/local all       # the demo, on this machine, about 8 minutes
scalewatt campaign campaigns/demo.yaml       # print and check a campaign
scalewatt doctor                             # what this machine can measure
```

Results lie in `results/<campaign>/`; `report.html` is the page to open first.
"""
_LINK = re.compile(r"\[([^\[\]]*)\]\((\.\./[^)#]+)(#[^)]*)?\)")
"""A link that leads out of a page's folder."""
IGNORED = "/results/\n/work/\n/data/\n/.snakemake/\n"


def write_project(folder: Path) -> list[Path]:
    """Write Snakefile, README, campaigns, profiles and docs into a new folder; return what is in it.

    InputError if the folder exists and is not empty, or cannot be made. Nothing is left half written.
    """
    if set("{}") & set(str(folder.absolute())):
        raise InputError(f"{folder}: has a brace in its path; allowed: folders without {{ and }}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists; expected a new folder, or an empty one")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder}: there is no folder {folder.absolute().parent}")
    # A folder that is there stays the same one: it may be the caller's working directory, or a mount.
    there = folder.exists()
    beside = folder if there else folder.absolute().parent
    made = Path(tempfile.mkdtemp(prefix=".scalewatt-init-", dir=beside))
    try:
        _fill(made)
        made.chmod(0o755)
        for child in made.iterdir() if there else ():
            child.replace(folder / child.name)
        if not there:
            made.replace(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return sorted(folder.iterdir())


def _fill(folder: Path) -> None:
    for name in COPIED:
        source, copy = PROJECT_ROOT / name, folder / name
        copy.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy)
    (folder / "Snakefile").write_text(SNAKEFILE, encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")
    (folder / ".gitignore").write_text(IGNORED, encoding="utf-8")
    for page in (folder / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(_LINK.sub(partial(_kept_link, page), text), encoding="utf-8")


def _kept_link(page: Path, link: re.Match[str]) -> str:
    """Return a link of a page; of one to what only a checkout has, such as a module, its words."""
    return link[0] if (page.parent / link[2]).exists() else link[1]

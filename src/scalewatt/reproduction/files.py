"""Make tables and figures again, and compare stored and regenerated files with the manifest.

Snakemake makes them, in a fresh directory that links the runs and their energies.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import yaml

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import exclusions_path
from scalewatt.campaign.load import SIMULATED
from scalewatt.common.files import file_sha256
from scalewatt.common.processes import signal_at_parents_death
from scalewatt.common.yaml_files import read_yaml
from scalewatt.reproduction.findings import DIFFERS, REGENERATED, STORED, Finding, compare, skip
from scalewatt.reproduction.manifest import FOLDERS, MANIFEST, SUMS, Manifest, files_below

RULES = (
    *("manifest", "tables", "runs_table", "figure_table", "table_text", "claims_table"),
    *("plan_table", "prediction_table", "figures", "draw_figure", "pages_of_runs", "run_pages"),
)
"""What may run: nothing that writes to the runs and energies, which are links."""
_MADE = (*FOLDERS, "logs", "reproduction", "report.html", MANIFEST, SUMS)
_CAMPAIGN = "reproduced-campaign"
_LONGEST = 500
"""Characters of Snakemake's last words that are kept."""
_LONGEST_DIFFERENCE = 300


def regenerate(
    folder: Path,
    campaign: Campaign,
    results: Path,
    name: str,
    config: Mapping[str, Any],
    snakemake: Sequence[str],
) -> tuple[Path, str | None]:
    """Make the files of a campaign again below `folder`; return its results there, and how that failed.

    `results`: the stored ones, which are only read; `name`: the campaign's when they were made.
    `config`: Snakemake's; `snakemake`: its command.
    """
    # Links to the workflow, and to what of the results is not made again.
    made = folder / "results" / name
    made.mkdir(parents=True)
    for path in Path.cwd().iterdir():
        if path.name not in ("results", "work", ".snakemake", _CAMPAIGN):
            (folder / path.name).symlink_to(path)
    for path in results.resolve().iterdir():
        if path.name not in _MADE and not path.name.startswith("."):
            (made / path.name).symlink_to(path)
    (made / "tables").mkdir()
    for path in kept_tables(results):
        (made / "tables" / path.name).symlink_to(path.resolve())
    file = _write_campaign(folder / _CAMPAIGN, campaign, name)
    content = {**config, "campaign": str(file.relative_to(folder)), "results_only": True}
    (folder / _CAMPAIGN / "cluster.json").write_text(json.dumps(content), encoding="utf-8")
    # All that the manifest depends on, as far as it can be made.
    done = subprocess.run(
        [
            *(*snakemake, "manifest", "--configfile", f"{_CAMPAIGN}/cluster.json"),
            *("--cores", "all", "--keep-going", "--quiet", "rules", "--workflow-profile", "none"),
            *("--scheduler", "greedy", "--allowed-rules", *RULES),
        ],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        preexec_fn=partial(signal_at_parents_death, signal.SIGTERM),
    )
    # The first job that failed, as our onerror says it; else Snakemake's own words.
    first = done.stdout.split("scalewatt: failed: ", 2)[1:2] or [done.stdout[-_LONGEST:]]
    return made, " ".join(first[0].split())[:_LONGEST] if done.returncode else None


def kept_tables(results: Path) -> list[Path]:
    """Stored tables that cannot be made again: of idle probes, and of power without the runs' traces."""
    names = ["idle", *([] if (results / "traces").is_dir() else ["figure5"])]
    return [path for name in names for path in sorted((results / "tables").glob(f"{name}.*"))]


def _write_campaign(folder: Path, campaign: Campaign, name: str) -> Path:
    """Write the campaign under the name that it had, which its tables have; return its file."""
    simulated = SIMULATED if campaign.name.endswith(SIMULATED) else ""
    content = {**read_yaml(campaign.path), "name": name.removesuffix(simulated)}
    content.pop("runs", None)  # registered runs lie where all others do, here
    folder.mkdir()
    path = folder / campaign.path.name
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    exclusions = exclusions_path(campaign)
    if exclusions.exists():
        (folder / exclusions.name).symlink_to(exclusions.resolve())
    return path


# --- comparison -----------------------------------------------------------------------------------


def file_findings(
    manifest: Manifest, results: Path, remade: Path | None, failure: str | None
) -> Iterator[Finding]:
    """Yield a row for each stored file, and one for each table and figure that was made again.

    `remade`: the results that were made again, None without a workflow; `failure`: how that failed.
    """
    for path, sha256 in manifest.files.items():
        yield _compare(STORED, path, sha256, results, remade)
    for path in (path for folder in FOLDERS for path in files_below(results, folder)):
        if path not in manifest.files:
            yield skip(STORED, path, "the manifest does not name it")

    kept = {path.relative_to(results).as_posix() for path in kept_tables(results)}
    for path, sha256 in manifest.files.items():
        if not path.startswith(FOLDERS):  # a run's files are not made again
            continue
        if path in kept:
            yield skip(REGENERATED, path, "what it is made from is not among the results")
        elif remade is None:
            yield skip(REGENERATED, path, "the workflow is not here; call it in a clone")
        elif (remade / path).is_file():
            yield _compare(REGENERATED, path, sha256, remade, results)
        elif failure is not None:
            why = f"making it again fails: {failure}"
            yield Finding(REGENERATED, path, DIFFERS, sha256, None, why)
        else:
            yield skip(REGENERATED, path, "the workflow does not make it from these files")


def _compare(check: str, path: str, sha256: str, folder: Path, other: Path | None) -> Finding:
    """Compare a file's hash with the manifest's; its copy in `other` shows where, if it is as recorded."""
    file, original = folder / path, other and other / path
    if not file.is_file():
        return compare(check, path, sha256, None, "the file does not exist any more")
    actual = file_sha256(file)
    where = "where it differs is unknown: no file is as recorded"
    if actual != sha256 and original and original.is_file() and file_sha256(original) == sha256:
        where = difference(original, file)
    return compare(check, path, sha256, actual, where)


def difference(expected: Path, actual: Path) -> str:
    """Say where a file differs: the first value of a table, the first byte of any other file."""
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": lambda path: pd.read_csv(path, dtype=str, keep_default_na=False),
        # As text with all digits, of which pandas shows few in its messages.
        ".parquet": lambda path: pd.read_parquet(path).astype(object).map(repr),
    }
    read = readers.get(expected.suffix)
    if read is None:
        pairs = enumerate(zip_longest(expected.read_bytes(), actual.read_bytes()), 1)
        at = next((at for at, (a, b) in pairs if a != b), 0)
        sizes = f"{expected.stat().st_size} and {actual.stat().st_size} bytes"
        return f"the first difference is at byte {at} ({sizes})"
    try:
        pd.testing.assert_frame_equal(read(expected), read(actual), check_exact=True)
    except AssertionError as error:
        # pandas names the column twice, and shows it whole in both tables.
        text = re.sub(r"^(\S.*) are different \1 ", r"\1 ", " ".join(str(error).split()))
        return re.sub(r"\[index\].*(?=At positional)", "", text)[:_LONGEST_DIFFERENCE]
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"one of them is not a readable table ({' '.join(str(error).split())})"
    return "all values are the same; metadata or encoding differ"

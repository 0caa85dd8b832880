"""README.md and docs/ say what the code does: columns, commands, targets, examples, links."""

from __future__ import annotations

import html
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
import yaml
from campaign_files import LOCAL, ROOT, edited
from snakemake.cli import get_argument_parser
from workspace import copy_workflow

from scalewatt.campaign.cluster import known_devices, parse_cluster
from scalewatt.campaign.expansion import expand
from scalewatt.cli import command_line, main
from scalewatt.cli.command import COMMANDS
from scalewatt.common.columns import columns
from scalewatt.common.settings import validated
from scalewatt.energies import traces
from scalewatt.recordings.tables import TableDescription
from scalewatt.recordings.terms import DOUBT, EXCLUDED, NOTE, UNKNOWN, flag_table
from scalewatt.registration.run_descriptions import RunDescription
from scalewatt.results.figures import figure_schema
from scalewatt.results.tables.table_schema import QUANTITIES
from scalewatt.training.history import HISTORY_SCHEMA

README = ROOT / "README.md"
FIRST_CAMPAIGN = ROOT / "docs" / "first-campaign.md"
TARGETS = ROOT / "docs" / "figures.md"
TABLES = ROOT / "docs" / "tables"
DOCUMENTS = [README, *sorted((ROOT / "docs").rglob("*.md"))]

LOWER_SCHEMAS: dict[str, pa.Schema] = {
    "history": HISTORY_SCHEMA,
    "traces": traces.TRACES_SCHEMA,
}
"""Tables whose schemas are not made of columns.csv."""
TYPES = {
    "string": "string",
    "int32": "int32",
    "int64": "int64",
    "double": "float64",
    "float": "float32",
    "timestamp[us, tz=UTC]": "timestamp",
    "int16": "int16",
    "bool": "bool",
    "dictionary<values=string, indices=int8, ordered=0>": "word",
    "dictionary<values=string, indices=int16, ordered=0>": "word",
}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- pages that are made ------------------------------------------------------------------------


MADE_BY = ("claim_rules", "flags", "keys", "presets", "tables")
SITE = {name: runpy.run_path(str(ROOT / ".ci" / "site" / f"{name}.py")) for name in MADE_BY}


def made_pages() -> Iterator[tuple[str, Path, str]]:
    """The script, the page and what the script would write, of each page that is made."""
    for name, script in SITE.items():
        if name in ("flags", "presets", "claim_rules"):
            yield name, script["PAGE"], script["written"](text(script["PAGE"]))
    for kind, path in SITE["keys"]["PAGES"].items():
        yield "keys", path, SITE["keys"]["written"](kind, text(path))
    for path in SITE["tables"]["pages"]():
        assert columns(path.stem) and "| `" in text(path), path
        yield "tables", path, SITE["tables"]["written"](text(path), path.stem)


def test_pages_that_are_made_are_as_they_would_be_made_now() -> None:
    for script, path, written in made_pages():
        assert written == text(path), f"run: python .ci/site/{script}.py"


@pytest.mark.parametrize("table", LOWER_SCHEMAS)
def test_columns_and_types_are_those_of_the_schema(table: str) -> None:
    listed = [(row.name, row.type) for row in columns(table).values()]
    assert listed == [(field.name, TYPES[str(field.type)]) for field in LOWER_SCHEMAS[table]]


@pytest.mark.parametrize(
    ("table", "quantities"),
    [("configurations", QUANTITIES), ("variants", figure_schema.VARIANT_QUANTITIES)],
)
def test_a_page_lists_the_quantities_that_its_table_sums_up(
    table: str, quantities: tuple[str, ...]
) -> None:
    (sentence,) = re.findall(r"^The quantities are .*$", text(TABLES / f"{table}.md"), re.M)
    assert tuple(re.findall(r"`(\w+)`", sentence)) == quantities


def test_the_table_has_every_flag_that_is_given_and_no_other() -> None:
    code = "\n".join(text(path) for path in (ROOT / "src" / "scalewatt").rglob("*.py"))
    table = flag_table()
    assert {
        *re.findall(r"flag\(\s*\"(\w+)\"", code),
        *re.findall(r"mark\(\s*\"(\w+)\"", code),
    } <= set(table)
    assert set(re.findall(r"\"(\w+)\"", code)) >= set(table)
    assert {row["severity"] for row in table.values()} == {NOTE, DOUBT, UNKNOWN, EXCLUDED}


# --- examples -----------------------------------------------------------------------------------


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text(path), flags=re.MULTILINE | re.DOTALL)


def yaml_blocks() -> list[dict[str, Any]]:
    return [yaml.safe_load(block) for path in DOCUMENTS for block in blocks(path, "yaml")]


def example_text() -> str:
    (block,) = [b for b in blocks(FIRST_CAMPAIGN, "yaml") if "series" in yaml.safe_load(b)]
    return block


@pytest.mark.parametrize("content", yaml_blocks(), ids=lambda content: "+".join(content))
def test_a_yaml_block_is_valid(content: dict[str, Any]) -> None:
    if "series" in content:
        assert expand(content, README, known_devices()).configurations
    elif {"model", "runs"} & set(content):  # of registered runs, which test_register registers
        assert set(content) <= {*RunDescription.model_fields, "runs"}
    elif {"sensors", "header", "time", "gpus"} & set(content):  # of a table of samples
        validated(TableDescription, content, "docs")
    else:  # a part of a cluster file
        whole = edited({}, LOCAL)
        (local,) = whole["devices"].values()
        devices = {name: local | device for name, device in content.get("devices", {}).items()}
        parse_cluster({**whole, **content, "devices": devices or whole["devices"]}, "docs")


def test_bad_input_gives_the_message_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("campaigns/first-study.yaml")
    path.parent.mkdir()
    path.write_text(example_text().replace("local_batch_size", "local_batchsize", 1))
    assert main(["campaign", str(path)]) == 1
    assert capsys.readouterr().err in blocks(FIRST_CAMPAIGN, "text")


# --- commands -----------------------------------------------------------------------------------


def commands(program: str) -> list[list[str]]:
    """Arguments of every call of `program` in shell blocks and in inline code."""
    lines = []
    for path in DOCUMENTS:
        lines += [line for block in blocks(path, "sh") for line in block.splitlines()]
        prose = re.sub(r"^```.*?^```$", "", text(path), flags=re.MULTILINE | re.DOTALL)
        lines += re.findall(r"`([^`\n]+)`", prose)
    calls = [shlex.split(line, comments=True) for line in lines if line.startswith(f"{program} ")]
    # What a shell writes to a file is the shell's.
    return [words[1 : words.index(">") if ">" in words else None] for words in calls]


@cache
def workflow_rules() -> dict[str, bool]:
    """The workflow's rules on all profiles, and whether they have outputs of their own."""
    clusters = ["config.yaml", "config/horeka.yaml", "config/simulate.yaml"]
    with TemporaryDirectory() as folder:
        copy_workflow(Path(folder, "project"))
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("rules_of_workflow.py"), *clusters],
            cwd=Path(folder, "project"),
            capture_output=True,
            text=True,
            check=True,
        )
    return {rule["name"]: rule["outputs"] > 0 for rule in json.loads(done.stdout)}


def documented_targets() -> set[str]:
    body = text(TARGETS).split("| target |")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", body, flags=re.MULTILINE)
    cells = [
        " ".join(f"`figure{n}`" for n in range(1, 8)) if "…" in cell else cell for cell in cells
    ]
    return set(re.findall(r"`(\w+)`", " ".join(cells)))


def test_documented_targets_are_rules_and_no_target_is_left_out() -> None:
    rules = workflow_rules()
    assert documented_targets() <= set(rules)
    assert {rule for rule, has_output in rules.items() if not has_output} <= documented_targets()


WITH_PROFILE = [words for words in commands("snakemake") if "--profile" in words]


@pytest.mark.parametrize("words", WITH_PROFILE, ids=" ".join)
def test_a_snakemake_command_is_right(words: list[str]) -> None:
    arguments = get_argument_parser().parse_args(words)
    rules = workflow_rules()
    (profile,) = (ROOT / path for path in arguments.profile)
    # What docs/your-cluster.md copies.
    copied = {"mine": "slurm"}
    profile = profile.with_name(copied.get(profile.name, profile.name))
    assert (profile / "profile.yaml").exists()
    forced = set(arguments.forcerun or ())
    allotted = {str(entry).partition(":")[0] for entry in arguments.set_resources or {}}
    assert set(arguments.targets) | forced | allotted <= set(rules)


@pytest.mark.parametrize("words", commands("scalewatt"), ids=" ".join)
def test_a_scalewatt_command_is_right(words: list[str]) -> None:
    assert command_line().parse_args(words).command in COMMANDS


# --- links --------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors that a Markdown viewer makes of a document's headings."""
    heads = re.findall(r"^#+ (.+)$", text(path), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", html.unescape(head).lower()).replace(" ", "-") for head in heads
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_link_and_image_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text(path)):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        linked = (path.parent / target).resolve() if target else path
        assert linked.exists(), link
        assert linked.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(linked), link

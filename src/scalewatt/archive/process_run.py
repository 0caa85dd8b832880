"""The runs of an archive as activities, in the terms of Process Run Crate.

Specification: https://w3id.org/ro/wfrun/process/0.5. One CreateAction a run, and one ActivateAction
for each segment of it that failed, as such a segment left no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from scalewatt.archive.crate_software import Node, package_nodes, scalewatt_node, short_hash, to
from scalewatt.campaign.dataset_rules import STAND_INS

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
PROFILE_TERMS = {"environment": "https://w3id.org/ro/terms/workflow-run#environment"}
"""Terms of the profile that RO-Crate 1.1 lacks, as far as they are used here."""
COMPLETED = "http://schema.org/CompletedActionStatus"
FAILED = "http://schema.org/FailedActionStatus"
_NO_FAILURE = ("finished", "stopped")
"""Outcomes of a segment: of the last one, and of one that stopped at a checkpoint as it was told."""


@dataclass(frozen=True)
class ArchivedRun:
    """A run of an archive: its spec, its provenance, and paths in the archive of what belongs to it."""

    configuration: str
    repeat: int
    spec: Mapping[str, Any]
    provenance: Mapping[str, Any]
    inputs: tuple[str, ...]
    """What it was made from: the campaign, its spec."""
    results: tuple[str, ...]
    """What it left."""

    @property
    def name(self) -> str:
        """Return the run as messages name it."""
        return f"{self.configuration} repeat {self.repeat}"

    @property
    def id(self) -> str:
        """Return the id of its activity."""
        return "#run-" + quote(f"{self.configuration}-{self.repeat}")

    @property
    def segments(self) -> list[Mapping[str, Any]]:
        """Return its segments, as its provenance has them."""
        return [one for one in self.provenance.get("segments") or () if isinstance(one, dict)]


@dataclass(frozen=True)
class Activities:
    """What made the files of an archive."""

    nodes: tuple[Node, ...] = ()
    """The activities, their software, and whatever else they name; each once."""
    ids: tuple[str, ...] = ()
    """Of the activities among these."""
    last_day: str | None = None
    """ISO 8601: the day on which the last one ended; None if none records it."""


def profile_node() -> Node:
    """Return the entity that describes the profile."""
    named = {"name": "Process Run Crate", "version": PROFILE.rpartition("/")[2]}
    return {"@id": PROFILE, "@type": "CreativeWork", **named}


def activities_of(runs: Iterable[ArchivedRun], agent_id: str | None = None) -> Activities:
    """Return the activities of runs; `agent_id` is that of whoever ran them, where it is known."""
    known = list(runs)
    nodes: dict[str, Node] = {}
    ids: list[str] = []
    for run in known:
        instruments, packages = _software_of(run)
        inputs, variables = list(_inputs_of(run)), list(_variables_of(run))
        common: Node = {
            "instrument": [to(one["@id"]) for one in instruments],
            "object": [*(to(quote(path)) for path in run.inputs), *(to(i["@id"]) for i in inputs)],
        }
        if variables:
            common["environment"] = [to(one["@id"]) for one in variables]
        if agent_id is not None:
            common["agent"] = to(agent_id)
        actions = [{**one, **common} for one in (_whole(run), *_failures(run))]
        ids += [one["@id"] for one in actions]
        described = (*actions, *instruments, *packages, *inputs, *variables)
        nodes |= {one["@id"]: one for one in described}
    ends = [end for run in known for end in _seconds(run.segments, "ended_s")]
    return Activities(tuple(nodes.values()), tuple(ids), moment(max(ends))[:10] if ends else None)


# --- the activities -------------------------------------------------------------------------------


def _whole(run: ArchivedRun) -> Node:
    """Return a run's activity, without what it has in common with those of its segments."""
    kind, does = _kind(run)
    return {
        "@id": run.id,
        "@type": "CreateAction",
        "name": f"{kind}: {run.name}",
        "description": f"{does} provenance.json records what it was made with; the energies were "
        "computed from its recordings.",
        **({} if run.provenance.get("simulated") else _times(run.segments)),
        "actionStatus": COMPLETED,
        "result": [to(quote(path)) for path in run.results],
    }


def _kind(run: ArchivedRun) -> tuple[str, str]:
    """Return what kind of run it is, and a sentence that says what was done."""
    if run.provenance.get("simulated"):
        return "Simulation", "Simulated with a scaling model: nothing was trained or measured."
    if run.provenance.get("registered"):
        return "Registered recording", (
            "Trained and recorded by other programs than scalewatt, which registered the recordings."
        )
    return "Training", "Trained under the energy monitor perun."


def _failures(run: ArchivedRun) -> Iterator[Node]:
    """Yield an activity for each segment that failed: the run went on from its last checkpoint."""
    for segment in run.segments:
        outcome = segment.get("outcome")
        if outcome in (None, *_NO_FAILURE):
            continue
        number = segment.get("segment")
        ended = "killed" if outcome == "running" else str(outcome)
        yield {
            "@id": f"{run.id}-segment-{number}",
            "@type": "ActivateAction",
            "name": f"Segment {number} of {run.name}",
            "description": "A part of the run that failed; a later one went on from its last checkpoint.",
            **_times([segment]),
            "actionStatus": FAILED,
            "error": str(segment.get("detail") or ended),
        }


def _times(segments: Iterable[Mapping[str, Any]]) -> Node:
    """Return when segments began and ended, as far as that is known."""
    listed = list(segments)
    starts, ends = _seconds(listed, "started_s"), _seconds(listed, "ended_s")
    return {
        **({"startTime": moment(min(starts))} if starts else {}),
        **({"endTime": moment(max(ends))} if ends else {}),
    }


def _seconds(segments: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    return [one[key] for one in segments if isinstance(one.get(key), int | float)]


def moment(seconds: float) -> str:
    """Return a Unix time in s as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


# --- what they name -------------------------------------------------------------------------------


def _software_of(run: ArchivedRun) -> tuple[list[Node], list[Node]]:
    """Return the programs that were run, and the packages that they needed."""
    listed = run.provenance.get("packages")
    versions = {
        str(name): str(version)
        for name, version in (listed.items() if isinstance(listed, dict) else ())
        if version is not None
    }
    own = versions.pop("scalewatt", None)
    packages = package_nodes(versions)
    trained = [one["commit"] for one in run.segments if one.get("commit")]
    commit = trained[-1] if trained else run.provenance.get("commit")
    tool = scalewatt_node(own, str(commit) if commit else None, packages)
    return [*_program(run), tool], packages


def _program(run: ArchivedRun) -> list[Node]:
    """Return the program of a campaign's authors that was trained with, if it was one."""
    words = run.provenance.get("command")
    text = " ".join(map(str, words)) if isinstance(words, list) else str(words or "")
    if not text:
        return []
    model = str(run.spec.get("model"))
    return [
        {
            "@id": "#program-" + quote(f"{model}-{short_hash(text)}"),
            "@type": "SoftwareApplication",
            "name": model,
            "description": f"A program of the campaign's authors, started by: {text}",
        }
    ]


def _inputs_of(run: ArchivedRun) -> Iterator[Node]:
    """Yield what a run read that is not in the archive: its dataset, and weights it began from."""
    dataset = run.spec.get("dataset") or {}
    name, digest = dataset.get("name"), str(run.provenance.get("dataset_sha256") or "")
    if name and dataset.get("format") not in STAND_INS:
        yield {
            "@id": "#dataset-" + quote(f"{name}-{digest[:12]}" if digest else name, safe=""),
            "@type": "CreativeWork",
            "name": f"the dataset {name}",
            "description": "Not in the archive"
            + ("; its identifier is the hash of its manifest." if digest else "."),
            **({"identifier": f"sha256:{digest}"} if digest else {}),
        }
    start = run.spec.get("initial_weights")
    if start:
        source = f"{start['configuration']}-{start['repeat']}"
        yield {
            "@id": "#weights-" + quote(source),
            "@type": "CreativeWork",
            "name": f"the final weights of {start['configuration']} repeat {start['repeat']}",
            "description": "Not in the archive.",
        }


def _variables_of(run: ArchivedRun) -> Iterator[Node]:
    """Yield the environment variables that its provenance lists and that were set."""
    listed = run.provenance.get("environment_variables")
    for name, value in sorted((listed or {}).items()):
        if value is not None:
            yield {
                "@id": "#variable-" + quote(f"{name}-{short_hash(str(value))}"),
                "@type": "PropertyValue",
                "name": name,
                "value": str(value),
            }

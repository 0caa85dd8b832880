"""Slurm's programs as far as an executor asks them, keeping their state in a folder.

A job runs nothing of Snakemake's: what it does and how it ends is its turn of a plan.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PROGRAMS = ("sbatch", "squeue", "sacct", "sacctmgr", "sinfo", "scontrol", "scancel")
_PROGRAM = """#!{python} -ISs
import fcntl, json, os, subprocess, sys
from pathlib import Path
root, name, words = Path({root!r}), Path(sys.argv[0]).name, sys.argv[1:]
def after(option):
    return words[words.index(option) + 1] if option in words else None
def turn(values):
    return values.pop(0) if len(values) > 1 else values[0]
def comment():
    return ([after("--comment")] + [w[10:] for w in words if w.startswith("--comment=")])[-1]
def fails(error):
    print(f"{{name}}: error: {{error}}", file=sys.stderr)
    sys.exit(1)
with open(root / "lock", "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    asks = "--test-only" in words
    with open(root / "calls", "a") as calls:
        print("asked" if asks else name, *words, file=calls)
    plan, jobs = (json.loads((root / f).read_text()) for f in ("plan.json", "jobs.json"))
    failing = json.loads((root / "fails.json").read_text())
    for call in [call for call, left in failing.items() if call in " ".join((name, *words)) and left]:
        (root / "fails.json").write_text(json.dumps(failing | {{call: failing[call] - 1}}))
        fails("no connection")
    if any(v.startswith((name.upper() + "_", "SLURM_TIME_FORMAT")) for v in os.environ):
        (root / "blinded").touch()  # what a user has chosen to see: nothing of these jobs
    elif name == "sacctmgr":
        print("test\\nother")  # the plugin asks for the user's accounts
    elif asks:
        for text, refusal in json.loads((root / "refuses.json").read_text()).items():
            if text in words:
                print(f"allocation failure: {{refusal}}", file=sys.stderr)
                sys.exit(1)
    elif name == "scontrol":
        print("MaxArraySize = 1001\\nMinJobAge = 300 sec")
    elif name == "sbatch":
        does = turn(plan.get(after("--comment")) or [{{}}])
        job = str(1000 + len(jobs))
        if "do" in does:
            subprocess.run(does["do"], shell=True, check=True, env={{**os.environ, "SLURM_JOB_ID": job}})
        if "refuse" not in does or "accepted" in does:
            states = does.get("states", ["COMPLETED"])
            jobs[job] = {{"name": after("--job-name"), "comment": comment(), "folder": after("-D"),
                         "state": states[0], "states": states, "queue": does.get("queue", ""),
                         "left": len(states)}}
        if "refuse" not in does:
            print(job)
    elif name == "scancel":
        for job in words:
            jobs[job] |= {{"state": "CANCELLED", "states": ["CANCELLED"], "queue": ""}}
    elif "-j" in words:  # sacct, or squeue of jobs that slurmctld has not yet forgotten
        for job in after("-j").split(","):
            print(f"{{job}}|{{jobs[job]['state']}}")
    elif name == "squeue":
        for job, entry in jobs.items():
            if entry["queue"] and entry["left"] > 0:
                said = [entry.get(key, "(null)") for key in ("name", "folder", "comment")]
                print(job, entry["queue"], "", "None", *said, sep="|")
            entry["left"] -= 1
            entry["state"] = turn(entry["states"])
    (root / "plan.json").write_text(json.dumps(plan))
    (root / "jobs.json").write_text(json.dumps(jobs))
    if name == "sbatch" and not asks and "refuse" in does:
        fails(does["refuse"])
"""


class FakeSlurm:
    """Programs below `root`/bin, for a PATH."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir(parents=True)
        self.plan({})
        (root / "jobs.json").write_text("{}")
        self.fails({})
        self.refuses({})
        for name in PROGRAMS:
            program = self.bin / name
            program.write_text(_PROGRAM.format(python=sys.executable, root=str(root)))
            program.chmod(0o755)

    def environment(self) -> dict[str, str]:
        """The environment with these programs, and this Python's, first."""
        first = (str(self.bin), str(Path(sys.executable).parent))
        return {**os.environ, "PATH": os.pathsep.join((*first, os.environ["PATH"]))}

    def plan(self, turns: dict[str, list[dict[str, Any]]]) -> None:
        """What the jobs of a comment do, one after another; the last is repeated.

        refuse: sbatch's error. accepted: all the same. do: shell command. states: what sacct says from one
        look at the queue to the next; queue: what squeue says until the last.
        """
        (self.root / "plan.json").write_text(json.dumps(turns))

    def refuses(self, options: dict[str, str]) -> None:
        """Let `sbatch --test-only` refuse an option, with these words."""
        (self.root / "refuses.json").write_text(json.dumps(options))

    def fails(self, calls: dict[str, int]) -> None:
        """Let calls that contain a text fail so many times."""
        (self.root / "fails.json").write_text(json.dumps(calls))

    def states(self) -> dict[str, str]:
        """What sacct says of each job."""
        jobs = json.loads((self.root / "jobs.json").read_text())
        return {job: entry["state"] for job, entry in jobs.items()}

    def calls(self, program: str) -> list[str]:
        """Arguments of each call of a program."""
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if line.split(" ")[0] == program]

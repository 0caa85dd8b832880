"""The part of a lock that some packages need, hashes included.

    python envs/subset.py envs/lock.txt envs/analysis.in > part.txt

A lock of uv says of each package which others ask for it ("# via"). So the part is found without any
package index, and it has the same versions and hashes as the whole. Only the standard library is needed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_ENTRY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==")
_VIA = re.compile(r"    #(?: via)?\s+([A-Za-z0-9][A-Za-z0-9._-]*)$")


def normalised(name: str) -> str:
    """A package's one name, by the index's rule: lower case, "-" for runs of "-", "_" and "."."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries_of(lock: str) -> dict[str, str]:
    """{package: its lines} of a lock's text; the header is left out."""
    entries: dict[str, str] = {}
    name = ""
    for line in lock.splitlines(keepends=True):
        found = _ENTRY.match(line)
        if found:
            name = normalised(found[1])
        if name:
            entries[name] = entries.get(name, "") + line
    return entries


def names_of(requirements: str) -> list[str]:
    """The packages that a requirements file names, without versions and comments."""
    lines = (line.partition("#")[0].strip() for line in requirements.splitlines())
    return [normalised(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in lines if line]


def subset(lock: str, wanted: list[str]) -> dict[str, str]:
    """{package: its lines}, in the lock's order, of the `wanted` ones and all that they need.

    ValueError names those that the lock does not have.
    """
    entries = entries_of(lock)
    missing = sorted(set(wanted) - set(entries))
    if missing:
        raise ValueError(f"not in the lock: {', '.join(missing)}")
    needs: dict[str, set[str]] = {name: set() for name in entries}
    for name, text in entries.items():
        for line in text.splitlines():
            found = _VIA.match(line)
            if found and normalised(found[1]) in needs:
                needs[normalised(found[1])].add(name)
    found_names: set[str] = set()
    open_names = list(wanted)
    while open_names:
        name = open_names.pop()
        if name not in found_names:
            found_names.add(name)
            open_names += needs[name]
    return {name: text for name, text in entries.items() if name in found_names}


def main() -> None:
    """Print the part."""
    lock, requirements = (Path(name) for name in sys.argv[1:])
    try:
        part = subset(lock.read_text("utf-8"), names_of(requirements.read_text("utf-8")))
    except ValueError as error:
        sys.exit(
            f"{requirements}: {error} ({lock}); add it to envs/requirements.in, then make lock"
        )
    sys.stdout.write("".join(part.values()))


if __name__ == "__main__":
    main()

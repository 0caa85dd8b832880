"""Read YAML that people write by hand: nothing in it means anything else than it looks like."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from scalewatt.common.errors import InputError


class _Loader(yaml.CSafeLoader):
    """YAML's safe loader, for which a date is a text, and 010, 1e3, 1:30 and .inf are errors."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge the mappings of `<<`; a key that a mapping itself gives twice is an error."""
        counts = Counter(str(key.value) for key, _ in node.value)
        if twice := [key for key, count in counts.items() if count > 1]:
            problem = f"the key '{twice[0]}' is given twice"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        super().flatten_mapping(node)
        # The mapping's value counts, not the merged one; another mapping may merge this one again.
        node.value = list({str(key.value): (key, value) for key, value in node.value}.values())


# Forms that YAML 1.1, which Snakemake reads, takes for other numbers than they look like, or for a text.
_AMBIGUOUS = re.compile(
    r"[-+]?(0[0-7_]+|[0-9_]+(:[0-9]+)+(\.[0-9_]*)?|[0-9]+(\.[0-9]*)?e[0-9]+|[0-9]+e[-+][0-9]+"
    r"|\.inf|\.nan)$",
    re.IGNORECASE,
)


def _refuse(_: yaml.Loader, node: yaml.ScalarNode) -> None:
    problem = f"{node.value} is another number to YAML, or none; write 1e3 as 1.0e+3, or use quotes"
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [("!ambiguous", _AMBIGUOUS), *(row for row in rows if not row[0].endswith("timestamp"))]
    for first, rows in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("!ambiguous", _refuse)


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML mapping.

    InputError if the file is missing or damaged, gives a key twice, or has an ambiguous number.
    """
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8-sig"), _Loader)
    except OSError as error:
        here = "" if Path(path).is_absolute() else f"; paths begin in {Path.cwd()}"
        raise InputError(f"{path}: cannot be read ({error.strerror}){here}") from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError) as error:
        raise InputError(f"{path}: {_reason(error)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys and values (a YAML mapping)")
    return content


def _reason(error: Exception) -> str:
    """Line and problem of YAML that cannot be read, in one line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = f"line {mark.line + 1}: " if mark else "is not readable YAML: "
    return line + " ".join(str(getattr(error, "problem", None) or error).split())

"""Read YAML that people write by hand: nothing in it means anything else than it looks like."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import plain_text

_SURPRISES = {
    "a number in base 60": re.compile(r"[-+]?[0-9_]+(:[0-9]+)+(\.[0-9_]*)?"),
    "an octal number": re.compile(r"[-+]?0[0-7_]+"),
    "a text, and with a point (1.0e3) a number": re.compile(r"[-+]?[0-9]+e[-+]?[0-9]+", re.I),
}
"""What YAML 1.1 takes plain scalars of some forms for."""


class _Loader(yaml.CSafeLoader):
    """YAML's safe loader, for which a date is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML mapping; InputError if the file is missing, is none, or has what YAML hides.

    That is: a key given twice, and a number that is written as a time of day, in octal, or as 1e3.
    """
    try:
        loader = _Loader(plain_text(path))
        root = loader.get_single_node()
        _refuse_surprises(root, set())
        content = None if root is None else loader.construct_document(root)
    except OSError as error:
        here = "" if Path(path).is_absolute() else f"; paths begin in {Path.cwd()}"
        raise InputError(f"{path}: cannot be read ({error.strerror}){here}") from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError) as error:
        raise InputError(f"{path}: {_reason(error)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys and values (a YAML mapping)")
    return content


def _refuse_surprises(node: Any, seen: set[int]) -> None:
    """Look at all nodes before any is constructed: that adds to a mapping what it merges (<<)."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if node.style not in ("'", '"', "|", ">"):
            _refuse_number(node)
        return
    parts = node.value
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
        keys = Counter(str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = next((key for key, times in keys.items() if times > 1 and key != "<<"), None)
        if twice is not None:
            _refuse(f"the key '{twice}' is given twice", node)
    for part in parts:
        _refuse_surprises(part, seen)


def _refuse_number(node: Any) -> None:
    for meaning, form in _SURPRISES.items():
        if form.fullmatch(node.value):
            _refuse(f"{node.value} is {meaning} to YAML; write it otherwise, or in quotes", node)


def _refuse(problem: str, node: Any) -> None:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _reason(error: Exception) -> str:
    """What is wrong and where, in one line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = f"line {mark.line + 1}: " if mark else "is not readable YAML: "
    return place + " ".join(str(getattr(error, "problem", None) or error).split())

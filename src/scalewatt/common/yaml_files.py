"""Read YAML that people write by hand: nothing in it means anything else than it looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import yaml

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import plain_text

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.CSafeLoader):
    """YAML's safe loader without what surprises: repeated keys, times as numbers, octal numbers."""

    def construct_document(self, node: Any) -> Any:
        self._refuse_repeated_keys(node)
        return super().construct_document(node)

    def _refuse_repeated_keys(self, root: Any) -> None:
        """Look at all mappings before any is constructed: that adds to it what it merges (<<)."""
        seen, waiting = set(), [root]
        while waiting:
            node = waiting.pop()
            if id(node) in seen or isinstance(node, yaml.ScalarNode):
                continue
            seen.add(id(node))
            if isinstance(node, yaml.SequenceNode):
                waiting += node.value
                continue
            keys = set()
            for key, value in node.value:
                waiting += (key, value)
                if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                    if key.value in keys:
                        _refuse(f"the key '{key.value[:100]}' is given twice", node)
                    keys.add(key.value)

    def construct_yaml_int(self, node: Any) -> int:
        text = self._number(node)
        digits = text.lstrip("+-").replace("_", "")
        value = super().construct_yaml_int(node)
        if digits[0] == "0" and digits.isdigit() and len(digits) > 1:
            _refuse(
                f"{text} is an octal number to YAML, {value}; allowed: without the leading 0, or in "
                "quotes for a text",
                node,
            )
        return value

    def construct_yaml_float(self, node: Any) -> float:
        self._number(node)
        return super().construct_yaml_float(node)

    def _number(self, node: Any) -> str:
        """Return a number's text; refuse 1:30:00, which YAML takes for 5400, whatever its unit."""
        text: str = self.construct_scalar(node)
        if ":" in text:
            _refuse(
                f"{text} is a number in base 60 to YAML; allowed: a number in the unit that the key "
                "names, or the same in quotes for a text",
                node,
            )
        return text


_Loader.add_constructor(f"{_TAG}int", _Loader.construct_yaml_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.construct_yaml_float)
# A date is a text: no key of ours is a date, and a text is what people mean by one.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _refuse(what: str, at: Any) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, what, at.start_mark)


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML mapping; InputError if the file is missing, is none, or has what YAML hides.

    That is: a key given twice, a number that is written as a time of day or in octal.
    """
    try:
        text = plain_text(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        where = (
            ""
            if Path(path).is_absolute()
            else f"; paths begin in the working directory, {Path.cwd()}"
        )
        raise InputError(f"{path}: cannot be read ({reason}){where}") from error
    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{path}: {_line_of(error)}") from error
    except (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: is no readable YAML ({reason})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys and values (a YAML mapping)")
    return content


def _line_of(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong and where, in one line."""
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}: " if mark else ""
    return place + " ".join("; ".join(filter(None, (error.context, error.problem))).split())

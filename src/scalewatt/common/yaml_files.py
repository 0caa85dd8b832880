"""Read YAML that people write by hand: nothing in it means anything else than it looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.composer import Composer

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import MOST_DIGITS, plain_text

MOST_VALUES = 500_000
"""Of a file, keys included: 10,000 registered runs with all that can be told of them. 20 µs each."""
MOST_REPEATED = 50_000
"""Of these, what aliases stand for, counted each time."""
_MOST_BYTES = 16 << 20
_TAG = "tag:yaml.org,2002:"
_SHOWN = 30
_PLAINER = {
    "found invalid Unicode character escape code": "a text has half a character (an escape \\ud800 to "
    "\\udfff) or one beyond Unicode",
}
"""What libyaml says -> what is meant."""


class _Loader(Composer, yaml.CSafeLoader):
    """YAML's safe loader without what surprises: repeated keys, tags, times as numbers, octal numbers.

    libyaml parses, and Python composes what it finds: a quarter of the time of Python's own parser.

    The number of values is bounded while they are read: aliases of aliases, a few lines, may stand for
    more than any memory holds.
    """

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self.values = self.repeated = 0
        self.sizes: dict[str, int] = {}
        """Values that an anchor's alias stands for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self.anchors and event.anchor not in self.sizes:
                _refuse(f"the alias *{event.anchor} stands within what it names itself", event)
            size = self.sizes.get(event.anchor or "", 1)
            self.repeated += size
            self._count(size, event)
            return super().compose_node(parent, index)
        if getattr(event, "tag", None) is not None:
            tag = f"!!{event.tag.removeprefix(_TAG)}" if _TAG in event.tag else event.tag
            _refuse(f"the tag {tag[:_SHOWN]}; allowed: plain values, and texts in quotes", event)
        before = self.values
        self._count(1, event)
        node = super().compose_node(parent, index)
        if event.anchor is not None:
            self.sizes[event.anchor] = self.values - before
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here, because constructing a mapping adds to it what it merges (<<).
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                if key.value in seen:
                    _refuse(f"the key '{key.value[:100]}' stands there twice", node)
                seen.add(key.value)
        return node

    def construct_yaml_int(self, node: Any) -> int:
        text = self._number(node)
        digits = text.lstrip("+-").replace("_", "")
        if len(digits) > MOST_DIGITS:
            _refuse(f"a number of {len(digits)} digits; allowed: at most {MOST_DIGITS}", node)
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
        if ":" in text and len(text) <= _SHOWN:
            kind = yaml.SafeLoader.construct_yaml_float if "." in text else None
            made = (kind or yaml.SafeLoader.construct_yaml_int)(self, node)
            _refuse(
                f"{text} is the number {made} to YAML; allowed: a number in the unit that the key "
                "names, or the same in quotes for a text",
                node,
            )
        if ":" in text:
            _refuse("a number with colons; allowed: a number, or the same in quotes", node)
        return text

    def _count(self, more: int, event: Any) -> None:
        self.values += more
        if self.repeated > MOST_REPEATED:
            _refuse(
                f"here its aliases repeat more than {MOST_REPEATED} values; allowed: at most so many, "
                "counted each time",
                event,
            )
        if self.values > MOST_VALUES:
            _refuse(f"here it has more than {MOST_VALUES} values; allowed: at most so many", event)


_Loader.add_constructor(f"{_TAG}int", _Loader.construct_yaml_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.construct_yaml_float)
# A date is a text: no key of ours is a date, and a text is what people mean by one.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != f"{_TAG}timestamp"]
    for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _refuse(what: str, at: Any) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, what, at.start_mark)


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML mapping; InputError if the file is missing, is none, or has what YAML hides.

    That is: a key given twice, a tag, a number that is written as a time of day or in octal, one of
    more than 40 digits, half a character, more than MOST_VALUES values.
    """
    try:
        text = plain_text(path, _MOST_BYTES)
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
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply; expected keys and values") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys and values (a YAML mapping)")
    return content


def _line_of(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong and where, in one line."""
    said = [_PLAINER.get(one, one) for one in (error.context, error.problem) if one]
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}: " if mark else ""
    return place + " ".join("; ".join(said).split())

"""Find what must not leave the machine with an archive: its paths, accounts and home folders."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Cluster
from scalewatt.common.errors import InputError
from scalewatt.common.redaction import own_paths
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.reproduction.manifests import Given

_TEXTS = (".json", ".csv", ".md", ".tex", ".yaml", ".html", ".svg")
_SHORTEST = 4
"""Minimum length of a text that is searched for."""


def private_words(cluster: Cluster) -> dict[str, str]:
    """Return the texts that must not be exported, with what each is."""
    found = {
        str(Path.home()): "the home folder",
        str(PROJECT_ROOT): "the folder of scalewatt",
        str(Path.cwd()): "the working folder",
        _account(cluster): "the account",
    }
    folders = [cluster.work_root, cluster.scratch or "", *cluster.data_roots.values()]
    sources = [value for source in cluster.sources.values() for value in _strings(source)]
    found |= dict.fromkeys(map(str, [*folders, *sources]), "a folder of the cluster file")
    return {
        word: what
        for word, what in found.items()
        if len(word) >= _SHORTEST and (what == "the account" or word.startswith("/"))
    }


def not_searched_for(cluster: Cluster) -> list[str]:
    """Return what cannot be searched for here: an account whose variable is not set."""
    if not cluster.account or _account(cluster):
        return []
    return [f"not searched for: the account, as {cluster.account} is not set here"]


def _account(cluster: Cluster) -> str:
    account = os.path.expandvars(cluster.account or "")
    return "" if "$" in account else account


def check_private(files: Mapping[str, Given], words: Mapping[str, str]) -> None:
    """Raise InputError, naming files and texts, for files with absolute paths or one of `words`."""
    found = [
        f"{name} ({said})" for name, given in files.items() for said in _private(name, given, words)
    ]
    if found:
        rest = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise InputError(
            f"not exported, as it would reveal this machine:  {'; '.join(found[:5])}{rest}; allowed: "
            "relative paths, or --allow-private"
        )


def _private(name: str, given: Given, words: Mapping[str, str]) -> Iterator[str]:
    if not name.endswith(_TEXTS):
        return
    content = given if isinstance(given, bytes) else given.read_bytes()
    text = content.decode(errors="replace")
    for word, what in words.items():
        if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text):
            yield f"{what}: {word}"
            return
    # Pages and drawings are full of texts that look like paths: end tags, and encoded images.
    if name.endswith((".json", ".csv", ".yaml")):
        looked = _strings(_json(text)) if name.endswith(".json") else (text,)
        yield from islice((path for one in looked for path in own_paths(one)), 1)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from (str(key), *_strings(one))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _strings(one)

"""Search files for what must not leave this machine: keys, accounts, folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from scalewatt.archive.bag import Source
from scalewatt.campaign.cluster import Cluster
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.redaction import absolute_paths, known_keys
from scalewatt.results.text.number_format import listed

_TEXTS = (".json", ".csv", ".md", ".tex", ".yaml", ".html", ".svg")
_SHORTEST_FOLDER = 4
"""Characters; an account of any length is searched for."""
_MOST_NAMED = 5


def private_words(cluster: Cluster) -> dict[str, str]:
    """Map each text that must not be exported to what it is."""
    of_cluster = [cluster.work_root, cluster.scratch or ""]
    of_cluster += [*cluster.data_roots.values(), *cluster.sources.values()]
    folders = {
        str(Path.home()): "the home folder",
        str(PROJECT_ROOT): "the folder of scalewatt",
        str(Path.cwd()): "the working folder",
        **dict.fromkeys(of_cluster, "a folder of the cluster file"),
    }
    words = {
        folder: what
        for folder, what in folders.items()
        if folder.startswith("/") and len(folder) >= _SHORTEST_FOLDER
    }
    account = _account(cluster)
    return {**words, account: "the account"} if account else words


def not_searched_for(cluster: Cluster) -> list[str]:
    """Sentences on what cannot be searched for here: an account whose variable is not set."""
    is_unknown = cluster.account and not _account(cluster)
    return (
        [f"not searched for: the account, as {cluster.account} is not set here"]
        if is_unknown
        else []
    )


def _account(cluster: Cluster) -> str:
    account = os.path.expandvars(cluster.account or "")
    return "" if "$" in account else account


def check_texts(files: Mapping[str, Source], words: Mapping[str, str], allow_private: bool) -> None:
    """Raise InputError, naming files, if any has a key of a known form, an absolute path or a word.

    Paths and words may be allowed. Keys may not, and are never repeated: whoever has them could use them.
    """
    keys: list[str] = []
    private: list[str] = []
    for name, source in files.items():
        if name.endswith(_TEXTS):
            content = source if isinstance(source, bytes) else source.read_bytes()
            text = content.decode(errors="replace")
            keys += [f"{name}: line {line} ({kind})" for line, kind in islice(known_keys(text), 1)]
            private += [f"{name} ({what})" for what in islice(_private(name, text, words), 1)]
    if keys:
        raise InputError(
            f"not exported, as whoever has a key could use it: {listed(keys, _MOST_NAMED)}; take it out, and "
            "have its provider replace it if others have seen the file"
        )
    if private and not allow_private:
        raise InputError(
            "not exported, as it would reveal this machine or somebody: "
            f"{listed(private, _MOST_NAMED)}; allowed: relative paths, or --allow-private"
        )


def _private(name: str, text: str, words: Mapping[str, str]) -> Iterator[str]:
    """Yield the words, and the absolute paths, in a file."""
    for word, what in words.items():
        if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text):
            yield f"{what}: {word}"
    # Pages and drawings are full of texts that look like paths: end tags, and encoded images.
    if name.endswith((".json", ".csv", ".yaml")):
        # JSON writes the end of a line as \\n, which would hide the path after it.
        yield from absolute_paths(re.sub(r"\\[nrt]", " ", text))

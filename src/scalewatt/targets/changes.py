"""Notes of changed settings, for what Snakemake did not make itself.

Snakemake compares settings with what it recorded when it made a file. Of results that were copied here, or
imported, it has no record: a note, newer than what was made with other settings, has them made again.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewatt.common.files import write_json
from scalewatt.run_files.inventory import json_object


def note_change(results: Path, name: str, stored: Any, asked: Any) -> list[str]:
    """The note on what is called `name`, made anew if it was made of `stored` but another is asked for.

    As long as that is asked for, it stays among the inputs: it is older than what is made after it. A dry run
    writes it too; where nothing can be written, nothing can be made either.
    """
    note, asked = results / "logs" / "changes" / f"{name}.json", json.loads(json.dumps(asked))
    if stored not in (None, asked) and json_object(note) != asked:
        with suppress(OSError):
            write_json(note, asked)
    return [str(note)] if json_object(note) == asked else []

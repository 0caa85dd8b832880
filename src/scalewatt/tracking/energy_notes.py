"""What was counted of a campaign's energy, noted so that the next look is cheap."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewatt.run_files.run_inventory import json_object

_VERSION = 2


class EnergyNotes:
    """A cache of earlier results in a file, rewritten only when something is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        content = json_object(path)
        found = content.get("entries") if content.get("version") == _VERSION else None
        self._entries: dict[str, Any] = found if isinstance(found, dict) else {}
        self._changed = False

    def get(self, name: str, of: str) -> Any:
        """Return what was noted of `name`; None if nothing, or for another `of`."""
        entry = self._entries.get(name)
        return entry.get("note") if isinstance(entry, dict) and entry.get("of") == of else None

    def put(self, name: str, of: str, note: Any) -> None:
        entry = {"of": of, "note": note}
        if self._entries.get(name) != entry:
            self._entries[name] = entry
            self._changed = True

    def save(self) -> None:
        """Write the notes, if their folder can be written."""
        if not self._changed:
            return
        temporary = self._path.with_name(f".{self._path.stem}.{os.getpid()}.tmp.json")
        with suppress(OSError):  # they are only a convenience
            try:
                text = json.dumps({"version": _VERSION, "entries": self._entries})
                temporary.write_text(text, encoding="utf-8")
                os.replace(temporary, self._path)
            finally:
                temporary.unlink(missing_ok=True)

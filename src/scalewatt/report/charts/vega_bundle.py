"""Vega, Vega-Lite and Vega-Embed as one script, from vl-convert, which carries them."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

from scalewatt import __version__
from scalewatt.common.files import write_text

_PACKAGE = "vl-convert-python"
_ENTRY = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> str | None:
    """Return the script, about 0.9 MB; None where vl-convert is not installed.

    To bundle it takes some seconds: it is kept in the user's cache folder, by both packages' versions.
    """
    try:
        import vl_convert
    except ImportError:
        return None
    kept = _cache_folder() / f"vega-{version(_PACKAGE)}-{__version__}.js"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    script = _inline(vl_convert.javascript_bundle(_ENTRY))
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, script)
    except OSError:  # no such folder, or no room: then it is bundled each time
        pass
    return script


def _inline(script: str) -> str:
    """Return a script that may stand between script tags."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scalewatt"

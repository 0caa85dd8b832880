"""Jinja2 as all pages use it: what a template asks for and nobody gives is an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

STYLE = Path(__file__).parent / "page.css"
"""The style of all pages."""


def templates(folder: Path) -> Environment:
    """The templates in `folder`, whose values are escaped as HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

"""Commands about what others need to believe a result: this machine, archives, repetition."""

from __future__ import annotations

from scalewatt.command_line.parts import Commands


def add(commands: Commands) -> None:
    """Add them."""

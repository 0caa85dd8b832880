"""Figures of blocks, each with a legend of its own and panels that share a row or take all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from scalewatt.figures import layout, style
from scalewatt.results.figures.figure_schema import panel_letter

Looks = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """One panel of a block: how it is drawn, its height in mm, and whether it takes the whole width."""

    draw: Callable[[Axes, pd.DataFrame, Looks], None]
    height_mm: float
    wide: bool = False


@dataclass(frozen=True)
class Block:
    """Points that belong together, with their panels, their legend and its title."""

    points: pd.DataFrame
    parts: Sequence[Part]
    looks: Looks
    handles: Sequence[Line2D]
    title: str


def draw_blocks(
    blocks: Sequence[Block], sentences: Sequence[str], width_mm: float, nothing: str
) -> Figure:
    """Draw blocks one below the other, with notes below them; without any, the sentence `nothing`."""
    preset = style.preset(width_mm)
    with style.applied(width_mm):
        if not blocks:
            figure = style.new_figure(60.0, width_mm)
            style.say_instead(figure.subplots(), nothing)
            style.notes(figure, sentences)
            return figure
        laid = [laid_out(one.parts, 2 if preset.narrow else 3) for one in blocks]
        heights = [
            sum(max(part.height_mm for part in row) for row in rows) + _legend_mm(one, preset)
            for one, rows in zip(blocks, laid, strict=True)
        ]
        figure = style.new_figure(sum(heights) + style.notes_mm(preset), width_mm)
        # Long labels of bars are wider in print than where they are laid out.
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=0.1)
        parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights).ravel()
        letter = 0
        for one, rows, part in zip(blocks, laid, parts, strict=True):
            letter = _draw_block(part, one, rows, preset, letter)
        style.notes(figure, sentences)
    return figure


def laid_out(parts: Sequence[Part], columns: int) -> list[list[Part]]:
    """Return the panels by row; one that is left alone in the last row has all of it."""
    rows: list[list[Part]] = []
    for part in parts:
        joins = rows and not part.wide and not rows[-1][0].wide and len(rows[-1]) < columns
        rows[-1].append(part) if joins else rows.append([part])
    return rows


def _draw_block(
    part: SubFigure, block: Block, rows: list[list[Part]], preset: style.Preset, letter: int
) -> int:
    """Draw the panels of a block; return the number of panels drawn so far."""
    heights = [max(one.height_mm for one in row) for row in rows]
    grid = part.add_gridspec(len(rows), 1, height_ratios=heights)
    for at, row in enumerate(rows):
        inside = grid[at].subgridspec(1, len(row))
        for place, one in enumerate(row):
            axes = part.add_subplot(inside[place])
            one.draw(axes, block.points, block.looks)
            size_mm = (preset.width_mm / len(row) - 14, one.height_mm - 12)
            layout.wrap_labels(axes, *layout.label_characters(size_mm, preset))
            style.panel_letter(axes, panel_letter(letter))
            letter += 1
    part.legend(
        handles=list(block.handles),
        loc="outside upper center",
        ncols=layout.legend_columns(block.handles, preset.legend_characters),
        handlelength=2.2,
        title=block.title,
        title_fontproperties={"weight": "bold", "size": preset.label_size},
    )
    return letter


def _legend_mm(block: Block, preset: style.Preset) -> float:
    columns = layout.legend_columns(block.handles, preset.legend_characters)
    return style.lines_mm(-(-len(block.handles) // columns), 1.3 * preset.text_size) + 6.0

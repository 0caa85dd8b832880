"""What the doctor found, as text: the conclusion first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from scalewatt.doctor.conclusion import Conclusion
from scalewatt.doctor.examine import Examination
from scalewatt.doctor.host_check import OK, Check

_WIDTH = 110
_KINDS = {"gpu": "GPU", "cpu": "CPU", "ram": "memory"}


def examination_text(found: Examination) -> str:
    """Return the examination as lines of text."""
    where = "this node (runs go to others)" if found.conclusion.elsewhere else "this machine"
    lines = [
        f"{found.host}, {found.profile.folder} (cluster {found.profile.cluster.name}, device "
        f"{found.device}), {found.took_s:.1f} s",
        "",
        *_wrapped(f"Runs {_can_run(found.conclusion)}", ""),
        *_wrapped(f"On {where} energy is: {_energy(found.conclusion)}", ""),
    ]
    for kind, one in found.conclusion.kinds.items():
        word = one.origin or ("unknown" if one.is_there else "left out")
        lines += _wrapped(f"{_KINDS[kind]:<7} {word:<9}  {one.why}", "  ", 21)
    lines.append("")
    for check in found.checks:
        lines += _check(check)
    return "\n".join(lines)


def _can_run(conclusion: Conclusion) -> str:
    names = ", ".join(conclusion.reasons)
    if conclusion.can_run:
        return "can be submitted from here." if conclusion.elsewhere else "can be made here."
    if conclusion.can_run is None:
        return f"may be possible: nobody knows yet, because of {names}."
    return f"cannot be made yet, because of {names}: see below."


def _energy(conclusion: Conclusion) -> str:
    known = [
        f"{_KINDS[kind]} {one.origin or 'unknown'}"
        for kind, one in conclusion.kinds.items()
        if one.is_there
    ]
    if conclusion.origin is None:
        return f"{', '.join(known) or 'nothing'}; a run's total would be unknown (null)"
    return f"{', '.join(known)} (energy_origin {conclusion.origin}, scope {conclusion.scope})"


def _check(check: Check) -> Iterator[str]:
    yield from _wrapped(f"{check.outcome:<7}  {check.name:<16}  {check.found}", "", 27)
    if check.means:
        yield from _wrapped(check.means, " " * 27)
    if check.outcome != OK or check.name == "slurm":
        for mend in check.mend:
            # Never broken: a command is to be copied.
            yield f"{'':<27}mend: {mend}"
        for ask in check.ask:
            yield from _wrapped(f"ask: {ask}", " " * 27)


def _wrapped(text: str, indent: str, hanging: int = 0) -> list[str]:
    after = indent + " " * hanging if not indent.strip() and hanging else indent
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=after,
        break_long_words=False,
        break_on_hyphens=False,
    )

"""What the publisher of BoAmps reports says of them; without the imports of writing one."""

from __future__ import annotations

from dataclasses import dataclass

STATUSES = ("draft", "final", "corrective", "other")
CONFIDENTIALITY = ("public", "internal", "confidential", "secret")
INFRASTRUCTURES = ("publicCloud", "privateCloud", "onPremise", "other")


@dataclass(frozen=True)
class BoampsOptions:
    """What nobody but the publisher of reports knows."""

    publisher: str | None = None
    confidentiality: str = "public"
    license: str | None = None
    status: str = "draft"
    task_family: str | None = None
    """Of models that scalewatt does not bring."""
    infrastructure: str = "other"
    country: str | None = None
    location: str | None = None

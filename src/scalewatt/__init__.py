"""scalewatt: what data-parallel training of neural networks costs in energy.

For notebooks: `read_recording`, `energy` and `load_campaign_results` (docs/guide/python.md). They, and pandas
with them, are imported when they are asked for.
"""

from typing import TYPE_CHECKING, Any

from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    from scalewatt.notebooks import CampaignResults, energy, load_campaign_results, read_recording

__version__ = "0.1.0"

__all__ = [
    "CampaignResults",
    "InputError",
    "__version__",
    "energy",
    "load_campaign_results",
    "read_recording",
]


def __getattr__(name: str) -> Any:
    """Return a function for notebooks; AttributeError for any other name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scalewatt import notebooks

    return getattr(notebooks, name)


def __dir__() -> list[str]:
    """Return the public names, also of what is not yet imported."""
    return sorted({*globals(), *__all__})

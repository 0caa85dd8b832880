"""From the generation of a grid by type of power plant to the carbon intensity of its mix.

Emissions are those of the whole life cycle, in g CO2e for each kWh that is generated.

AR5   medians of Table A.III.2 in: Schlömer S. et al., 2014: Annex III: Technology-specific cost and
      performance parameters. In: Climate Change 2014: Mitigation of Climate Change. Contribution of
      Working Group III to the Fifth Assessment Report of the IPCC
SRREN median of Table A.II.4 in: Moomaw W. et al., 2011: Annex II: Methodology. In: IPCC Special Report
      on Renewable Energy Sources and Climate Change Mitigation; AR5 has none of oil

Types without a factor of their own take that of the nearest fuel (`as coal`). It is too low for lignite,
peat and oil shale, of which neither report has a median. What is known of neither fuel nor origin is left
out of the mix, stored electricity too: it emitted when it was generated.
"""

from __future__ import annotations

import pandas as pd

AR5, SRREN = "IPCC AR5 WGIII, Annex III", "IPCC SRREN, Annex II"
FACTORS: dict[str, tuple[float, str]] = {
    "biomass": (230, f"{AR5}: dedicated biomass"),
    "fossil brown coal/lignite": (820, f"{AR5}: as coal"),
    "fossil coal-derived gas": (820, f"{AR5}: as coal"),
    "fossil gas": (490, f"{AR5}: gas, combined cycle"),
    "fossil hard coal": (820, f"{AR5}: coal, pulverised"),
    "fossil oil": (840, f"{SRREN}: oil"),
    "fossil oil shale": (840, f"{SRREN}: as oil"),
    "fossil peat": (820, f"{AR5}: as coal"),
    "geothermal": (38, f"{AR5}: geothermal"),
    "hydro run-of-river and poundage": (24, f"{AR5}: hydropower"),
    "hydro water reservoir": (24, f"{AR5}: hydropower"),
    "marine": (17, f"{AR5}: ocean"),
    "nuclear": (12, f"{AR5}: nuclear"),
    "solar": (48, f"{AR5}: solar PV, utility"),
    "wind offshore": (12, f"{AR5}: wind offshore"),
    "wind onshore": (11, f"{AR5}: wind onshore"),
}
"""g CO2e per kWh by ENTSO-E's type of production in small letters, with where it comes from."""
UNKNOWN = ("other", "other renewable", "waste", "hydro pumped storage", "energy storage")
"""Types without a factor: left out of the mix."""
STORAGE = ("hydro pumped storage", "energy storage")
MOST_UNKNOWN = 0.25
"""Of what is generated, but for storage, this share may have no factor: our choice."""


def mix_intensity(generation_mw: pd.DataFrame) -> pd.Series:
    """Return g CO2e per kWh of each row; columns are types of production, small letters, in MW.

    A type that has no value in any row does not exist there. NaN for a row that lacks the value of a type
    that others have, that generates nothing, or too much of which has no factor.
    """
    there = generation_mw.dropna(axis="columns", how="all")
    there = there[[name for name in there if name not in STORAGE]]
    known = there[[name for name in there if name in FACTORS]]
    factors = {name: FACTORS[name][0] for name in map(str, known)}
    emitted = known.mul(pd.Series(factors, dtype=float)).sum(axis="columns")
    generated, total = known.sum(axis="columns"), there.sum(axis="columns")
    whole = there.notna().all(axis="columns") & (generated > 0)
    enough = total - generated <= MOST_UNKNOWN * total
    return (emitted / generated).where(whole & enough)

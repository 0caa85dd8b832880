"""Whether a campaign can be simulated, before anything is written."""

from __future__ import annotations

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.scaling.model.model_file import ScalingModel
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.simulate_run import simulation


def check_simulations(campaign: Campaign, cluster: Cluster, model: ScalingModel) -> None:
    """InputError where a run of the campaign cannot be simulated: the first reason in full.

    Of the others each kind of training that the model does not know is named, and how many
    configurations cannot be simulated.
    """
    reasons: list[str] = []
    kinds: dict[str, None] = {}
    for id_ in campaign.configurations:
        spec = run_spec(campaign, id_, 1)
        kind = kind_of_spec(spec)
        try:
            simulation(spec, cluster, model.of(kind))
        except InputError as error:
            reasons.append(str(error))
            kinds[kind.name] = None
    if not reasons:
        return
    first, *others = kinds
    more = f"; nor are {'; '.join(others)}" if others else ""
    raise InputError(
        f"{campaign.path}: {len(reasons)} of {len(campaign.configurations)} configurations cannot be "
        f"simulated, first {first}{more}: {reasons[0]}"
    )

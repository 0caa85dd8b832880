"""What happens in a simulated run: its time, its energies, its segments, its nodes."""

from __future__ import annotations

from dataclasses import dataclass

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.scaling.model.cost_terms import load_of_spec
from scalewatt.scaling.model.kind_model import KindModel
from scalewatt.scaling.model.model_file import ScalingModel
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.assumptions import BETWEEN_S
from scalewatt.scaling.simulation.power_profile import levels_of
from scalewatt.scaling.simulation.run_sample import RunDraw, draw_run
from scalewatt.scaling.simulation.sensors import Nodes, Periods
from scalewatt.scaling.simulation.stage_schedule import Segment, segments_of

BEGUN_S = 946_684_800.0
"""Unix time at which every simulated run begins: 2000-01-01, which no measured run has."""


@dataclass(frozen=True)
class Simulation:
    """A run as it is simulated."""

    spec: RunSpec
    model: KindModel
    draw: RunDraw
    nodes: Nodes
    segments: tuple[Segment, ...]

    @property
    def calibrated(self) -> bool:
        """Return True if the model was calibrated on this training, of whichever campaign.

        The same kind with the same load: GPUs, nodes, LBS, samples, updates and epochs.
        """
        own = kind_of_spec(self.spec), load_of_spec(self.spec)
        return own in {(point.kind, point.load) for point in self.model.points}

    def started_s(self, segment: Segment) -> float:
        """Return the Unix time at which a segment begins."""
        before = self.segments[: segment.number]
        return BEGUN_S + sum(one.seconds + BETWEEN_S for one in before)

    def discarded(self, segment: Segment) -> tuple[float, float]:
        """Return begin and end of a segment's lost work, in s from its start; equal where there is none.

        It is the evaluations that a later segment does again, because a stop broke them off.
        """
        later = {
            (stage.name, stage.epoch)
            for one in self.segments[segment.number + 1 :]
            for stage in one.stages
        }
        repeated = [
            stage
            for stage in segment.stages
            if stage.name in EVALUATIONS and (stage.name, stage.epoch) in later
        ]
        return (repeated[0].start_s, repeated[-1].end_s) if repeated else (0.0, 0.0)


def simulation(
    spec: RunSpec, cluster: Cluster, model: KindModel, is_scaled: bool = True
) -> Simulation:
    """Return what happens in a run.

    Unless `is_scaled`, its GPUs' samples vary as a real sensor's do, and so does their integral.
    InputError if the cluster's nodes are not as wide as the spec's, the model has no energy, or no
    segment makes progress.
    """
    device = cluster.devices[spec.device]
    _check_nodes(spec, device, cluster)
    draw = draw_run(spec, model, device)
    (whole,) = segments_of(spec, draw.runtime_s)
    segments = segments_of(spec, draw.runtime_s, _limit_s(cluster, device))
    levels = levels_of(spec, device, draw, whole)
    nodes = Nodes(spec, device, draw, levels, _periods(spec, cluster), is_scaled)
    return Simulation(spec, model, draw, nodes, tuple(segments))


def check_simulations(campaign: Campaign, cluster: Cluster, model: ScalingModel) -> None:
    """Raise InputError if a run of the campaign cannot be simulated: the first reason in full.

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


def _check_nodes(spec: RunSpec, device: Device, cluster: Cluster) -> None:
    """Raise InputError if the cluster would not place the run on nodes as the spec has them."""
    gpus, width = spec.gpus, device.gpus_per_node
    if (spec.nodes, spec.ranks_per_node) != (-(-gpus // width), min(gpus, width)):
        raise InputError(
            f"{spec.configuration}: has {spec.ranks_per_node} ranks on each of {spec.nodes} "
            f"nodes, but on the cluster '{cluster.name}' nodes of {device.name} have {width} GPUs; make "
            "the spec with this cluster, or name the one that it was made with"
        )


def _limit_s(cluster: Cluster, device: Device) -> float | None:
    """Return how long a job trains until it is told to stop."""
    limit = device.time_limit_min
    return None if limit is None else limit * 60.0 - cluster.stop_warning_s


def _periods(spec: RunSpec, cluster: Cluster) -> Periods:
    own = float(spec.sampling_period_s or 1.0)
    usual = float(cluster.simulate.get("sampling_period_s", own))
    return Periods(usual, min(own, usual), float(cluster.simulate.get("fine_start_s", 0.0)))

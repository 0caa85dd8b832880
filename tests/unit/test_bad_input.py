"""Bad input never starts a job: one message, exit code 1, no traceback, nothing created."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaign_files import DELETE, DEMO, LOCAL, Edits, Refused, demo, edited, write_yaml

from scalewatt.campaign.cluster import load_cluster

# Each line: an edit of the demo, as path/to/key: value, and what the message says (an expression).
CAMPAIGNS = r"""
# sizes that do not fit each other, the device or the data
series/resnet50-full-gbs32/gpus: [2, 3] | series.resnet50-full-gbs32.global_batch_size: 32 .*3 GPUs
series/resnet50-full-lbs16/gpus: [1, 2, 6] | multiple of 4
series/resnet50-full-lbs16: {model: resnet50, device: a100, gpus: [512], local_batch_size: 1} | at most 256
series/resnet50-full-lbs16/local_batch_size: 2048 | 2048.*at most 1024
series/resnet50-full-gbs16/global_batch_size: 4096 | at 1 GPU.*at most 1024
series/resnet50-full-lbs16/global_batch_size: 128 | local_batch_size and global_batch_size
series/resnet50-full-lbs16/local_batch_size: DELETE | no batch size
series/resnet50-scaled-gbs16/gpus: [1, 2, 4] | dataset_fraction.*n/2.*at most 1
series/resnet50-full-lbs16/dataset_fraction: 3/2 | at most 1
series/fourcastnet-pretrain-lbs4/dataset_fraction: n/4 | allowed: 1
series/resnet50-full-lbs16/dataset_fraction: 1/1000 | leaves 0 training samples
models/fourcastnet.pretrain/patch_size: 5 | patch_size 5.*divisor of both
models/fourcastnet.pretrain/num_blocks: 5 | embed_dim 64.*num_blocks 5
models/fourcastnet.pretrain/initial_condition_spacing: 4 | 36 initial conditions.*at most 30
series/resnet50-full-lbs16/gpus: [1, 8] | at most 4
datasets/scans/train_samples: 5000 | 5200 samples.*at most 1797
datasets/waves/samples_per_year: 1464 | 1464, but 1979 has 1460 samples with targets 12 h ahead.*up to 1460
series/resnet50-full-lbs16/local_batch_size: 383 | a pass of one sample
# series that contradict each other
series/resnet50-full-gbs32/seeds: varied | seeds: varied.*resnet50-full-lbs16
series/resnet50-full-gbs32/repeats: 2 | repeats: 2.*resnet50-full-lbs16 has 1
series/fourcastnet-finetune-lbs4/local_batch_size: 1 | fourcastnet.pretrain-local-n001-lbs0001-full
series/fourcastnet-finetune-lbs4/repeats: 2 | fourcastnet.pretrain-local-n001-lbs0004-full.*2 repeats
models/fourcastnet.finetune/embed_dim: 128 | fine-tun.*embed_dim.*128
# what is not known
sampling_period: 1 | unknown key 'sampling_period'.*did you mean 'sampling_period_s'
series/resnet50-full-lbs16/repeat: 5 | did you mean 'repeats'
series/resnet50-full-lbs16/settings: {momentun: 0.8} | did you mean 'momentum'
series/resnet50-full-lbs16/settings: {patch_size: 4} | settings.*'patch_size'
figures/figure8: {series: [resnet50-full-lbs16]} | 'figure8'.*did you mean 'figure
1: 1 | unknown key '1'
series/resnet50-full-lbs16/model: resnet5 | allowed: resnet50, fourcastnet; did you mean 'resnet50'
series/resnet50-full-lbs16/device: a10 | 'a10'.*add 'a10' to
series/resnet50-full-lbs16/phase: pretrain | allowed: train
series/fourcastnet-pretrain-lbs4/phase: DELETE | allowed: pretrain, finetune
models/resnet50/dataset: scan | did you mean 'scans'
models/resnet50/dataset: waves | format imagenet.*'waves'
models/resnet50: DELETE | 'resnet50'
figures/figure2/series: [resnet50-full-lbs61] | did you mean 'resnet50-full-lbs16'
figures/figure5/points: [{series: resnet50-full-lbs16, gpus: 8}] | 8 GPUs.*allowed: 1, 2, 4
# values
protocol: DELETE | missing key 'protocol'
protocol: correct | did you mean 'corrected'
name: ../demo | lower-case letters, digits and hyphens
name: demo-simulated | not ending in -simulated
series/resnet50-full-lbs16/gpus: 4 | valid list
series/resnet50-full-lbs16/gpus: [0] | 0 does not fit: input should be greater than or equal to 1
series/resnet50-full-lbs16/gpus: [1, 1] | gpus
series/resnet50-full-lbs16/local_batch_size: "16" | integer
series/resnet50-full-lbs16/local_batch_size: 16.0 | integer
series/resnet50-full-lbs16/dataset_fraction: n/0 | "n/0".*allowed: 1, or a fraction
series/resnet50-full-lbs16/seeds: different | same.*varied
models/resnet50/momentum: 1 | less than 1
models/resnet50/crop_scale: [1, 0.5] | crop_scale.*wrong way round
models/resnet50/base_learning_rate: .inf | line \d+: \.inf is another number
sampling_period_s: .nan | line \d+: \.nan is another number
datasets/waves/train_years: [1980, 1979] | 1980.*1979
datasets/waves/validation_years: [1980, 1981] | not trained on
seed: 4294967296 | seed.*equal to 4294967295
models/resnet50/epochs: 1000000000 | models.resnet50.epochs.*equal to
series/resnet50-full-lbs16/repeats: 1000000 | lbs16.repeats.*equal to
series/resnet50-full-lbs16/gpus: [1000000000000] | lbs16.gpus.*equal to
series/..%evil: {model: resnet50, device: local, gpus: [1], local_batch_size: 1} | series.*letters
datasets/{br}: {} | datasets.*letters
figures/figure2/series: [resnet50-full-lbs16, resnet50-full-lbs16] | figures.figure2.series.*once
figures/figure2/width_mm: 100 | figures.figure2.width_mm: 100 is not known; allowed: 88, 180
figures/figure2/panels: [a] | figures.figure2.panels.*"a" does not fit
# clocks and power limits
series/resnet50-full-lbs16/gpu_clock_mhz: 1.41 | lbs16.gpu_clock_mhz: 1.41 does not fit: input .* 100
series/resnet50-full-lbs16/gpu_clock_mhz: 1410000 | lbs16.gpu_clock_mhz: .* equal to 10000
series/resnet50-full-lbs16/gpu_clock_mhz: 1410 MHz | lbs16.gpu_clock_mhz: "1410 MHz" .* number
series/resnet50-full-lbs16/gpu_power_limit_w: 0.25 | lbs16.gpu_power_limit_w: .* equal to 10
series/resnet50-full-lbs16/cpu_clock_mhz: [2400] | lbs16.cpu_clock_mhz: .*number
"""
CLUSTERS = r"""
work_rot: w | did you mean 'work_root'
devices/local/gpu_per_node: 4 | devices.local.*did you mean 'gpus_per_node'
launcher: DELETE | missing key 'launcher'
devices: {} | devices
devices/local/gpus_per_node: 0 | 0 does not fit: input .* 1
results_only: maybe | "maybe".*boolean
carbon_intensity: {value: 300} | missing key 'source'
launcher: mpiexec -n {ranks} | {ranks}.*{gpus}
launcher: "mpiexec -n {gpus" | launcher
cluster: ../other | "../other"
pue/value: 0.5 | pue.value: 0.5 does not fit: input .* 1
devices/local/cpu/rated_w: 150000 | 10000
devices/local/gpu: {idle_w: 50, rated_w: 40} | devices.local.gpu.rated_w: 40 is below
work_root: "" | work_root
devices/local/partition: --wrap=x | --wrap=x
account: --uid=0 | --uid=0
series: {} | unknown key 'series'
launcher: mpiexec -n 4 | launcher.*{gpus}
launcher: mpiexec -n {gpus} 'a | launcher.*quot
launcher: mpiexec -n {gpus!r} | launcher.*{gpus}
launcher: "  " | launcher
launcher: srun --nodes={nodes} | launcher.*{gpus}
devices/a,b: {} | devices.*letters
# where data come from
sources: {photos: {files: [/a]}} | sources.photos
sources: {photos: ""} | sources.photos
sources: {photos: 7} | sources.photos: 7 does not fit: input
# how levers are set
levers: {clock: "--gpu-freq={value}"} | "clock" is not known
levers: {gpu_clock_mhz: "--gpu-freq={clock}"} | unknown placeholder '{clock}'
levers: {gpu_clock_mhz: "--gpu-freq"} | sets the same for every value
levers: {gpu_clock_mhz: "'{value}"} | No closing quotation
levers: {gpu_clock_mhz: {set: "nvidia-smi -lgc {value}"}} | levers.gpu_clock_mhz: missing key 'undo'
levers: {gpu_clock_mhz: {set: nvidia-smi -lgc 705, undo: nvidia-smi -rgc}} | sets the same for every value
"""


def cases(table: str) -> list[Any]:
    """The edit and the expression of each line."""
    lines = [line for line in table.strip().splitlines() if not line.startswith("#")]
    return [pytest.param(*line.split(" | "), id=line.split(" | ")[0]) for line in lines]


def edits(line: str) -> Edits:
    """What a line sets or deletes."""
    ((path, value),) = yaml.safe_load(line).items()
    keys = tuple(path.split("/")) if isinstance(path, str) else (path,)
    return {keys: DELETE if value == "DELETE" else value}


@pytest.mark.parametrize(("line", "said"), cases(CAMPAIGNS))
def test_a_campaign_is_refused_for(line: str, said: str, refused: Refused) -> None:
    message = refused.campaign(edits(line))
    assert re.search(said, message), message


@pytest.mark.parametrize(("line", "said"), cases(CLUSTERS))
def test_a_cluster_file_is_refused_for(line: str, said: str, refused: Refused) -> None:
    message = refused.cluster(edits(line))
    assert re.search(said, message), message


def test_a_last_batch_of_one_larger_image_is_accepted() -> None:
    name = "resnet50-full-lbs16"
    series = {("series", name, "settings"): {"image_size": 64}}
    campaign = demo({**series, ("series", name, "local_batch_size"): 383})
    assert campaign.configurations[campaign.series[name].points[1]].updates_per_epoch == 2


@pytest.mark.parametrize("protocol", ["paper", "corrected"])
def test_protocol_paper_needs_a_validation_image_for_each_gpu(
    protocol: str, refused: Refused
) -> None:
    line = ("series", "resnet50-full-lbs16")
    edits = {(*line, "settings"): {"image_size": 64}, (*line, "dataset_fraction"): "1/80"}
    edits |= {(*line, "protocol"): protocol}
    if protocol == "corrected":
        assert demo(edits).configurations
    else:
        assert "validation images for 4 GPUs; allowed: at least one" in refused.campaign(edits)


def test_a_file_that_is_not_there_or_of_another_kind_is_named(refused: Refused) -> None:
    assert "No such file" in refused.message(refused.folder / "nowhere.yaml")
    assert "directory" in refused.message(refused.folder)
    assert "nowhere.yaml" in refused.message(DEMO, "--site", refused.folder / "nowhere.yaml")
    assert "unknown key" in refused.message(DEMO, "--site", DEMO)
    assert "unknown key" in refused.message(LOCAL)


def test_the_given_clusters_limits_count(refused: Refused) -> None:
    limit = ("devices", "local", "max_local_batch_size")
    path = write_yaml(refused.folder / "c.yaml", edited({limit: {"resnet50": 8}}, LOCAL))
    message = refused.message(DEMO, "--site", path)
    assert "resnet50-full-lbs16" in message and "at most 8" in message


def test_nodes_and_ranks_per_node_say_how_many_ranks_there_are(tmp_path: Path) -> None:
    launcher = "srun --nodes={nodes} --ntasks-per-node={ranks_per_node}"
    path = write_yaml(tmp_path / "cluster.yaml", edited({("launcher",): launcher}, LOCAL))
    assert load_cluster(path).launcher == launcher

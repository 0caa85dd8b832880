"""What is known of MLPerf Training's benchmarks and not in their logs: metrics, units, parallelism.

Metrics and targets: the rules of MLPerf Training v4.0 (github.com/mlcommons/training_policies). Dataset
of ssd: OpenImages-MLPerf, 1 170 301 images, where the log has the batches of an epoch under
`train_samples`; of bert: Wikipedia, 156 725 653 examples (the reference implementation), where the log
has the samples trained on.
Parallelism: the submitters' own configurations (closed/<submitter>/benchmarks, config files).
"""

from __future__ import annotations

from dataclasses import dataclass

EPOCHS, SAMPLES = "epochs", "samples"


@dataclass(frozen=True)
class Benchmark:
    """One benchmark of MLPerf Training."""

    metric_name: str
    metric_goal: str
    target: float
    counts: str
    """What `epoch_num` or `samples_count` of an evaluation counts in: epochs or samples."""
    dataset_samples: int | None = None
    """Where the log states another number under `train_samples`."""
    splits_model: bool = False
    """True if submitters split the model over several GPUs."""


BENCHMARKS = {
    "resnet": Benchmark("top1_accuracy", "max", 0.759, EPOCHS),
    "ssd": Benchmark("mean_average_precision", "max", 0.34, EPOCHS, dataset_samples=1_170_301),
    "bert": Benchmark("masked_lm_accuracy", "max", 0.72, SAMPLES, dataset_samples=156_725_653),
    "unet3d": Benchmark("mean_dice", "max", 0.908, EPOCHS, splits_model=True),
    "llama2_70b_lora": Benchmark("eval_loss", "min", 0.925, SAMPLES, splits_model=True),
    "gpt3": Benchmark("log_perplexity", "min", 2.69, SAMPLES, splits_model=True),
    "dlrm_dcnv2": Benchmark("auc", "max", 0.80275, EPOCHS, splits_model=True),
}

GPUS_PER_REPLICA = {
    ("Sustainable Metal Cloud", "llama2_70b_lora", 1): 4,
    ("Sustainable Metal Cloud", "llama2_70b_lora", 8): 8,
    ("Sustainable Metal Cloud", "llama2_70b_lora", 64): 8,
}
"""By submitter, benchmark and nodes: tensor × context parallel GPUs of one copy of the model."""

"""What is known of the trainings that Zeus measured and not in its tables: samples, metrics, targets.

A sample is what the publisher of the dataset counts: an image, an utterance, a rating, a question, a
tweet. That an epoch passes over all of its training set is what Zeus's examples do with CIFAR-100 and
ImageNet; of the others it is taken from the dataset's name alone. NCF adds items that were not rated to
each epoch; of Sentiment140 a part may have been held out. Sizes: CIFAR-100
cs.toronto.edu/~kriz/cifar.html; ImageNet image-net.org (ILSVRC 2012); LibriSpeech openslr.org/12, all
960 h; MovieLens-1M grouplens.org/datasets/movielens/1m; SQuAD 1.1 rajpurkar.github.io/SQuAD-explorer;
Sentiment140 help.sentiment140.com.
Targets: github.com/ml-energy/zeus, examples/research_reproducibility/zeus_nsdi23/run_alibaba.py, which
repeats the paper's experiments.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalewatt.recordings.published.zeus_summary import Training


@dataclass(frozen=True)
class KnownTraining:
    """One training of a network on a dataset."""

    label: str
    samples: int
    """In the training set."""
    metric_name: str
    metric_goal: str
    target: float
    """In the tables' unit, at which the paper ends a training."""
    phase: str | None = None
    """Where one network is trained on several datasets, the dataset."""


TRAININGS = {
    ("cifar100", "shufflenetv2"): KnownTraining(
        "ShuffleNetV2, CIFAR-100", 50_000, "top1_accuracy", "max", 0.6
    ),
    ("imagenet", "resnet50"): KnownTraining(
        "ResNet-50, ImageNet", 1_281_167, "top1_accuracy", "max", 0.65
    ),
    ("librispeech", "deepspeech2"): KnownTraining(
        "DeepSpeech2, LibriSpeech", 281_241, "word_error_rate_percent", "min", 40.0
    ),
    ("movielens-1m", "ncf"): KnownTraining("NCF, MovieLens-1M", 1_000_209, "ndcg", "max", 0.41),
    ("squad", "bert_base_uncased"): KnownTraining(
        "BERT, SQuAD", 87_599, "f1_percent", "max", 84.0, phase="squad"
    ),
    ("sentiment140", "bert_base_uncased"): KnownTraining(
        "BERT, Sentiment140", 1_600_000, "accuracy", "max", 0.84, phase="sentiment140"
    ),
}
"""By dataset and network, as the tables name them."""

GPU_NAMES = {
    "a40": "NVIDIA A40",
    "p100": "NVIDIA P100",
    "rtx6000": "NVIDIA Quadro RTX 6000",
    "v100": "NVIDIA V100",
}
"""By the word in a file's name. Other GPUs are registered without a name."""


def known_training(training: Training) -> KnownTraining | None:
    """Return what is known of a training; None of one that Zeus's paper has not."""
    return TRAININGS.get((training.dataset, training.network))

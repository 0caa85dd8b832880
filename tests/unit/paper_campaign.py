"""What the paper's campaign must hold, written down a second time from the paper's words."""

from __future__ import annotations

from typing import Any

# series: GPU counts, and the two batch sizes as functions of n (the paper's tables of series)
DOUBLING = [2**k for k in range(9)]
BATCHES: dict[str, tuple[list[int], Any]] = {
    "resnet50-full-lbs256": (DOUBLING, lambda n: (256, 256 * n)),
    "resnet50-full-gbs256": ([1, 2, 4, 8, 16], lambda n: (256 // n, 256)),
    "resnet50-full-gbs8192": ([32, 64, 128, 256], lambda n: (8192 // n, 8192)),
    "resnet50-scaled-lbs256": (DOUBLING, lambda n: (256, 256 * n)),
    "resnet50-scaled-gbs256": ([1, 2, 4, 8, 16], lambda n: (256 // n, 256)),
    "resnet50-scaled-gbs8192": ([32, 64, 128, 256], lambda n: (8192 // n, 8192)),
    "fourcastnet-pretrain-lbs1": ([4, 8, 16, 32, 64, 128, 256], lambda n: (1, n)),
    "fourcastnet-finetune-lbs1": ([16, 32, 64, 128, 256], lambda n: (1, n)),
    "fourcastnet-pretrain-gbs64": ([16, 32, 64], lambda n: (64 // n, 64)),
    "fourcastnet-pretrain-gbs16-h100": ([4, 8, 16], lambda n: (16 // n, 16)),
    "fourcastnet-pretrain-gbs32-h100": ([4, 8, 16, 32], lambda n: (32 // n, 32)),
    "fourcastnet-pretrain-gbs16": ([4], lambda n: (4, 16)),
    "fourcastnet-probe": ([64], lambda n: (1, 64)),
}

# What the paper says in words; the campaign leaves nearly all of it to the schema's defaults.
RESNET50_SETTINGS = {
    "image_size": 224, "base_learning_rate": 0.1, "warmup_epochs": 5, "warmup_start": 0.1,
    "momentum": 0.9, "weight_decay": 1e-4, "plateau_factor": 0.5, "plateau_patience": 5,
    "crop_scale": [0.5, 1.0], "horizontal_flip": True, "precision": "torch_default",
    "loader_workers": 4, "loader": "pil", "compile": False, "channels_last": False,
}  # fmt: skip
FOURCASTNET_SETTINGS = {
    "patch_size": 8, "embed_dim": 768, "depth": 12, "num_blocks": 8, "mlp_ratio": 4,
    "sparsity_threshold": 0.01, "weight_decay": 0, "initial_conditions": 36,
    "initial_condition_spacing": 36, "precision": "fp16", "loader_workers": 4,
    "loader": "hdf5", "compile": False,
}  # fmt: skip

SHARED = [
    ("resnet50-full-lbs256", "resnet50-full-gbs256", 1),
    ("resnet50-full-lbs256", "resnet50-full-gbs8192", 32),
    ("resnet50-full-lbs256", "resnet50-scaled-lbs256", 256),
    ("resnet50-full-gbs256", "resnet50-scaled-gbs256", 16),
    ("resnet50-full-gbs8192", "resnet50-scaled-gbs8192", 256),
    ("resnet50-scaled-lbs256", "resnet50-scaled-gbs8192", 32),
    ("fourcastnet-pretrain-lbs1", "fourcastnet-pretrain-gbs64", 64),
]

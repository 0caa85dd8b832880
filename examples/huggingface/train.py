"""Train a small classifier with Hugging Face's Trainer; all that is added names scalewatt."""

from scalewatt.huggingface import ScalewattCallback, last_checkpoint  # first: it hears a stop

# isort: split
import argparse
import os

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
for name in ("batch-size", "epochs", "samples", "seed"):
    parser.add_argument(f"--{name}", type=int, required=True)
given = parser.parse_args()


class Points(Dataset):
    """Put your own data here: the class is the coordinate that is largest."""

    def __init__(self, samples: int, seed: int) -> None:
        self.points = torch.randn(samples, 32, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, i: int) -> dict:
        return {"points": self.points[i], "labels": self.points[i].argmax()}


class Classifier(torch.nn.Module):
    """Any model whose output begins with the loss; a `PreTrainedModel` is one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32)
        )

    def forward(self, points: torch.Tensor, labels: torch.Tensor) -> dict:
        logits = self.layers(points)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def error(evaluated) -> dict:
    """Wrong answers in percent; the Trainer calls it eval_error."""
    return {"error": 100 * float((evaluated.predictions.argmax(1) != evaluated.label_ids).mean())}


trainer = Trainer(
    Classifier(),
    TrainingArguments(
        output_dir=os.environ.get("SCALEWATT_WORK", "work"),  # persists until the run has finished
        per_device_train_batch_size=given.batch_size,
        per_device_eval_batch_size=500,
        num_train_epochs=given.epochs,
        learning_rate=1e-3,
        seed=given.seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    ),
    train_dataset=Points(given.samples, seed=1),
    eval_dataset=Points(2000, seed=2),
    compute_metrics=error,
    callbacks=[ScalewattCallback("eval_error")],
)
trainer.train(resume_from_checkpoint=last_checkpoint())

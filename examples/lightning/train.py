"""Train a small vision transformer with Lightning, with one callback of scalewatt's."""

from scalewatt.lightning import ScalewattCallback, last_checkpoint  # first: no stop is missed

# isort: split
import argparse
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class ViT(L.LightningModule):
    def __init__(self, width=64, classes=10):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, kernel_size=8, stride=8)
        self.places = torch.nn.Parameter(torch.zeros(1, 16, width))
        layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
        self.blocks = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(width, classes)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.blocks(patches + self.places).mean(1))

    def training_step(self, batch, _):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        logits = self(batch[0])
        wrong = (logits.argmax(1) != batch[1]).float().mean()
        self.log("val_loss", F.cross_entropy(logits, batch[1]), sync_dist=True)
        self.log("val_error", 100 * wrong, sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def images(samples, seed):  # put your own dataset here
    made = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (samples,), generator=made)
    pictures = torch.randn(samples, 3, 32, 32, generator=made)
    pictures[torch.arange(samples), 0, 3 * labels] += 3  # a bright row tells the class
    return TensorDataset(pictures, labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("devices", "nodes", "batch-size", "epochs", "samples", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    work = os.environ.get("SCALEWATT_WORK", "work")  # persists until the run has finished
    L.seed_everything(given.seed)
    trainer = L.Trainer(
        devices=given.devices,
        num_nodes=given.nodes,
        strategy="ddp",
        max_epochs=given.epochs,
        logger=CSVLogger(work),
        callbacks=[ModelCheckpoint(work), ScalewattCallback("val_error")],
        enable_progress_bar=False,
    )
    trainer.fit(
        ViT(),
        DataLoader(images(given.samples, seed=1), given.batch_size, shuffle=True),
        DataLoader(images(2000, seed=2), given.batch_size),
        ckpt_path=last_checkpoint(),
    )

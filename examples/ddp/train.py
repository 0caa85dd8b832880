"""Train a small classifier with DistributedDataParallel; the lines with `scalewatt` are all that is added.

The launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun does.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from scalewatt.events import report, stage, stop_requested

parser = argparse.ArgumentParser()
for name in ("batch-size", "epochs", "samples", "seed"):
    parser.add_argument(f"--{name}", type=int, required=True)
given = parser.parse_args()

stop_requested()  # from here on a request to stop does not end the process
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
torch.manual_seed(given.seed)

# Put your own data here: the class is the coordinate that is largest.
points = torch.randn(given.samples, 32, generator=torch.Generator().manual_seed(1))
data = TensorDataset(points, points.argmax(1))
sampler = DistributedSampler(data, seed=given.seed, drop_last=True)
loader = DataLoader(data, given.batch_size, sampler=sampler)

model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32))
model = DistributedDataParallel(model.to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

# Continue from the checkpoint of an earlier job, in a folder that persists until the run is finished.
work = os.environ.get("SCALEWATT_WORK", ".")
checkpoint = os.path.join(work, "checkpoint.pt")
first = 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1

for epoch in range(first, given.epochs):
    stage("train", epoch=epoch)
    sampler.set_epoch(epoch)
    samples = updates = 0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        samples, updates = samples + len(labels), updates + 1

    stage("validate", epoch=epoch)
    with torch.no_grad():
        wrong = (model(points[:2000].to(device)).argmax(1).cpu() != data.tensors[1][:2000]).float()
    error = 100 * wrong.mean().item()
    everywhere = samples * dist.get_world_size()
    report(epoch=epoch, metric=error, samples=everywhere, updates=updates, train_loss=loss.item())

    # Ranks may learn of a request at different times: they stop together.
    asked = torch.tensor(float(stop_requested()), device=device)
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    if asked:
        stage("checkpoint", epoch=epoch)
        if dist.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "epoch": epoch}, checkpoint)
        dist.barrier()
        sys.exit(75)  # stopped at a checkpoint: the next job goes on

dist.destroy_process_group()

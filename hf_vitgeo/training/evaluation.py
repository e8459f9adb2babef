"""Accuracy of a classifier on any number of processes."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import nn


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: nn.Module, loader: Iterable[Any]) -> float:
    """Top-1 accuracy, each picture counted once on any number of processes.

    Args:
        accelerator: of the run.
        model: a classifier.
        loader: this process's share of the pictures: batches of `pixel_values` and `labels`.

    Returns:
        Share of right pictures in [0, 1].

    Raises:
        ValueError: when a process has no picture at all, or none can be read.
    """
    model.eval()
    counts = torch.zeros(2, device=accelerator.device)
    for batch, counted in _in_step(accelerator, loader):
        with accelerator.autocast():
            predicted = model(pixel_values=batch["pixel_values"]).logits.argmax(dim=1)
        if counted:
            counts[0] += (predicted == batch["labels"]).sum()
            counts[1] += len(predicted)
    right, count = accelerator.reduce(counts).tolist()
    if count == 0:
        raise ValueError("there is no evaluation picture that can be read")
    return right / count


def _in_step(accelerator: Accelerator, loader: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Batches on the device until every process has run out: a sharded model answers only when all ask.

    A process that has run out sooner repeats its last batch, marked False.
    """
    iterator, last = iter(loader), None
    while True:
        batch = next(iterator, None)
        found = torch.tensor([float(batch is not None)], device=accelerator.device)
        if not accelerator.reduce(found).item():
            return
        if batch is not None:
            last = send_to_device(batch, accelerator.device)
        if last is None:
            raise ValueError("there are fewer evaluation pictures than processes")
        yield last, batch is not None

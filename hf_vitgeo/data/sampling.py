"""Training samples whose order and augmentation depend on (seed, epoch, index) and on nothing else.

The sampler hands out (epoch, index) pairs, so that a worker process, a second process or a resumed run prepares the
same picture in the same way.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, Sampler


class EpochSampler(Sampler[tuple[int, int]]):
    """A seeded shuffle for each epoch; yields (epoch, index).

    Args:
        length: number of samples.
        seed: seed of the order.
    """

    def __init__(self, length: int, seed: int):
        self.length, self.seed, self.epoch = length, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration hands out."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.length)
        return ((self.epoch, int(index)) for index in order)


class TrainingSamples(Dataset):
    """Pictures in memory with a random transform that is seeded for each of them.

    Args:
        images: (N, height, width, 3) uint8.
        labels: (N,) int64.
        transform: PIL image -> (3, height, width) float32 tensor; draws from torch's global generator.
        seed: seed of the augmentation.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, transform: Callable[[Any], torch.Tensor], seed: int):
        self.images, self.labels, self.transform, self.seed = images, labels, transform, seed

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, key: tuple[int, int]) -> dict[str, Any]:
        epoch, index = key
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_mix(self.seed, epoch, index))
            pixel_values = self.transform(Image.fromarray(self.images[index]))
        return {"pixel_values": pixel_values, "labels": int(self.labels[index])}


class EvaluationSamples(Dataset):
    """Pictures in memory with a fixed transform.

    Args:
        images: (N, height, width, 3) uint8.
        labels: (N,) int64.
        transform: PIL image -> (3, height, width) float32 tensor.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, transform: Callable[[Any], torch.Tensor]):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.transform(Image.fromarray(self.images[index])), "labels": int(self.labels[index])}


def _mix(seed: int, epoch: int, index: int) -> int:
    """One 63-bit seed from three numbers; different triples give unrelated streams."""
    return int(np.random.SeedSequence((seed, epoch, index)).generate_state(1, np.uint64)[0] >> np.uint64(1))

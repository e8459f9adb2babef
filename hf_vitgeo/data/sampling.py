"""Training samples whose order and augmentation depend on (seed, epoch, index) and on nothing else.

The sampler hands out (epoch, index) pairs, so that a worker process, a second process or a resumed run prepares the
same picture in the same way.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, Sampler


class ImageSource(Protocol):
    """Pictures with labels by number: what a split is to the loop, in memory or decoded when asked for."""

    @property
    def labels(self) -> np.ndarray:
        """(N,) int64."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Image.Image, int]: ...


class ArrayImages:
    """Decoded pictures in memory.

    Args:
        images: (N, height, width, 3) uint8.
        labels: (N,) int64.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.images[index]), int(self.labels[index])


class RowImages:
    """Pictures that are decoded when they are asked for: what does not fit in memory, or is cut from the original.

    Args:
        table: what `datasets.load_image_dataset` gives.
    """

    def __init__(self, table: Any):
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @property
    def labels(self) -> np.ndarray:
        """(N,) int64."""
        return np.asarray(self.table.select_columns("label")["label"], dtype=np.int64)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        row = self.table[index]
        return row["image"], int(row["label"])


class EpochSampler(Sampler[tuple[int, int]]):
    """A seeded shuffle for each epoch, in whole batches; yields (epoch, index).

    On several processes, consecutive batches go to consecutive processes: one step of all of them sees the pictures
    that one process would see with a batch as many times larger.

    Args:
        length: number of samples.
        seed: seed of the order.
        batch_size: samples a batch on each process; what does not fill a batch on all of them is left out.
        rank: number of this process.
        world_size: number of processes.
    """

    def __init__(self, length: int, seed: int, batch_size: int = 1, rank: int = 0, world_size: int = 1):
        self.length, self.seed, self.batch_size = length, seed, batch_size
        self.rank, self.world_size = rank, world_size
        self.num_batches = length // (batch_size * world_size)
        self.set_epoch(0)

    def set_epoch(self, epoch: int, skip_batches: int = 0) -> None:
        """Choose what the next iteration hands out.

        Args:
            epoch: which shuffle.
            skip_batches: batches of this process to leave out at the beginning, after a resume.
        """
        self.epoch, self.skip_batches = epoch, skip_batches

    def __len__(self) -> int:
        return (self.num_batches - self.skip_batches) * self.batch_size

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.length)
        used = order[: self.num_batches * self.world_size * self.batch_size]
        # (samples,) -> (batches, processes, samples of a batch)
        mine = used.reshape(self.num_batches, self.world_size, self.batch_size)[self.skip_batches :, self.rank]
        return ((self.epoch, int(index)) for index in mine.reshape(-1))


class TrainingSamples(Dataset):
    """Pictures with a random transform that is seeded for each of them.

    Args:
        source: pictures with labels by number.
        transform: PIL image -> (3, height, width) float32 tensor; draws from torch's global generator.
        seed: seed of the augmentation.
    """

    def __init__(self, source: ImageSource, transform: Callable[[Any], torch.Tensor], seed: int):
        self.source, self.transform, self.seed = source, transform, seed

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, key: tuple[int, int]) -> dict[str, Any]:
        epoch, index = key
        image, label = self.source[index]
        return training_row(image, label, epoch, index, self.transform, self.seed)


def training_row(
    image: Image.Image, label: int, epoch: int, index: int, transform: Callable[[Any], Any], seed: int
) -> dict[str, Any]:
    """One row of a training batch; the global generator is as before afterwards.

    Args:
        image: PIL image of mode RGB.
        label: its class.
        epoch: which pass over the data.
        index: number of the picture.
        transform: PIL image -> (3, height, width) float32 tensor, or a dict of it and what goes with it.
        seed: with epoch and index, seed of the transform.

    Returns:
        `pixel_values`, `labels`, `epoch` and `index`.
    """
    # torch.manual_seed and fork_rng look after every device: 350 microseconds a picture, three times the transform
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(mix_seed(seed, epoch, index))
    try:
        prepared = transform(image)
    finally:
        generator.set_state(before)
    prepared = prepared if isinstance(prepared, dict) else {"pixel_values": prepared}
    return {**prepared, "labels": label, "epoch": epoch, "index": index}


class EvaluationSamples(Dataset):
    """Pictures with a fixed transform; on several processes, every one of them once, on one of the processes.

    Args:
        source: pictures with labels by number.
        transform: PIL image -> (3, height, width) float32 tensor.
        rank: number of this process.
        world_size: number of processes.
    """

    def __init__(
        self, source: ImageSource, transform: Callable[[Any], torch.Tensor], rank: int = 0, world_size: int = 1
    ):
        self.source, self.transform = source, transform
        self.mine = range(rank, len(source), world_size)

    def __len__(self) -> int:
        return len(self.mine)

    def __getitem__(self, index: int) -> dict[str, Any]:
        image, label = self.source[self.mine[index]]
        return {"pixel_values": self.transform(image), "labels": label}


def mix_seed(*numbers: int) -> int:
    """One 63-bit seed from several numbers; different ones give unrelated streams."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))

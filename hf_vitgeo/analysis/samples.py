"""The pictures on which a model is measured: a seeded random sample, its hash, and batches of it."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image


@dataclass(frozen=True)
class Sample:
    """Decoded pictures of one data set.

    Attributes:
        images: (n, height, width, 3) uint8.
        labels: (n,) int64.
        dataset: its name in results.
        split: the split it was drawn from.
        mean: of the channels in [0, 1], for normalisation.
        std: likewise.
        batch_size: pictures a batch.
    """

    images: np.ndarray
    labels: np.ndarray
    dataset: str
    split: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    batch_size: int = 128

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits of the pictures' bytes: the same pictures, the same hash."""
        return hashlib.sha256(np.ascontiguousarray(self.images).tobytes()).hexdigest()[:12]

    def batches(self) -> Iterator[torch.Tensor]:
        """Normalised pixel values (B, 3, height, width) float32; can be called again and again."""
        mean, std = (torch.tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (self.mean, self.std))
        for start in range(0, len(self.images), self.batch_size):
            batch = torch.from_numpy(self.images[start : start + self.batch_size])
            # (B, h, w, 3) -> (B, 3, h, w)
            yield (batch.permute(0, 3, 1, 2).float() / 255 - mean) / std

    def subset(self, n: int, seed: int) -> "Sample":
        """A seeded random subset without replacement, in order; everything where there are not more than `n`."""
        if n >= len(self.images):
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(len(self.images), n, replace=False))
        return replace(self, images=self.images[chosen], labels=self.labels[chosen])

    def shifted(self, shift: Callable[[Any], Any]) -> "Sample":
        """The same pictures after a shift (PIL image in and out), at the model's size and before normalisation."""
        return replace(self, images=np.stack([np.asarray(shift(Image.fromarray(image))) for image in self.images]))

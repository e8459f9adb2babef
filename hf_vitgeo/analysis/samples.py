"""The pictures on which a model is measured: a seeded random sample, its hash, and batches of it."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image

from hf_vitgeo.data.datasets import subset_rows
from hf_vitgeo.data.images import resize


def label_map(class_names: Sequence[str], id2label: Mapping[int, str]) -> np.ndarray | None:
    """Which output of a classifier stands for each class of a data set.

    Args:
        class_names: the data's classes, by label.
        id2label: the model's classes, by output.

    Returns:
        (classes,) int64, so that `label_map(...)[labels]` are outputs of the model: by name, whatever the order, also
        where the model knows more classes. The identity where the model has as many outputs without names of their
        own. None where a class of the data is none of the model's.
    """
    outputs = {_plain(name): number for number, name in id2label.items()}
    unnamed = all(name == f"LABEL_{number}" for number, name in id2label.items())
    if unnamed and len(id2label) == len(class_names):
        return np.arange(len(class_names))
    if not all(_plain(name) in outputs for name in class_names):
        return None
    return np.array([outputs[_plain(name)] for name in class_names])


def shared_classes(class_names: Sequence[str], id2label: Mapping[int, str]) -> np.ndarray:
    """Which output of a classifier stands for each class of a data set that shares only some of them.

    Args:
        class_names: the data's classes, by label.
        id2label: the model's classes, by output.

    Returns:
        (classes,) int64 outputs, -1 for a class that the model does not have. Of names with synonyms ("tench, Tinca
        tinca") the first also counts.
    """
    outputs = {_plain(name.split(",")[0]): number for number, name in id2label.items()}
    outputs |= {_plain(name): number for number, name in id2label.items()}
    return np.array([outputs.get(_plain(name), outputs.get(_plain(name.split(",")[0]), -1)) for name in class_names])


def _plain(name: str) -> str:
    """Names differ between a data set and a model's card in case, spaces and underscores only."""
    return name.strip().lower().replace("_", " ")


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
        chosen = subset_rows(len(self.images), n, seed)
        return replace(self, images=self.images[chosen], labels=self.labels[chosen])

    def shifted(self, shift: Callable[[Any], Any]) -> "Sample":
        """The same pictures after a shift (PIL image in and out), at the model's size and before normalisation."""
        return replace(self, images=np.stack([np.asarray(shift(Image.fromarray(image))) for image in self.images]))


def sample_of(
    source: Any,
    n: int,
    seed: int,
    dataset: str,
    split: str,
    size: tuple[int, int],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    batch_size: int,
) -> Sample:
    """Decode a seeded random sample of a source.

    Args:
        source: pictures (PIL, RGB) and labels by number.
        n: how many; all where there are not more.
        seed: of the choice.
        dataset: its name in results.
        split: the split's name.
        size: height and width in pixels.
        mean: of the channels in [0, 1].
        std: likewise.
        batch_size: pictures a batch.

    Returns:
        The sample.
    """
    chosen = subset_rows(len(source), min(n, len(source)), seed)
    rows = [source[int(index)] for index in chosen]
    images = np.stack([np.asarray(resize(image, *size)) for image, _ in rows])
    return Sample(images, np.array([label for _, label in rows]), dataset, split, mean, std, batch_size)

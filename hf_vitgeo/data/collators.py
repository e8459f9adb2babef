"""Batches that mix pictures and their labels: CutMix (paper B's decisive part) and MixUp, its control."""

# B pictures in a batch, K classes

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate


def cutmix_box(height: int, width: int, keep: float, row: int, column: int) -> tuple[slice, slice]:
    """The pasted rectangle of Yun et al. (2019), clipped at the border.

    Args:
        height: of the pictures, in pixels.
        width: likewise.
        keep: lambda in [0, 1], the share of the picture that should stay.
        row: centre of the box, in pixels.
        column: likewise.

    Returns:
        Rows and columns of the box. Its sides are int(side * sqrt(1 - lambda)) before clipping, made even by halving.
    """
    spans = []
    for side, centre in ((height, row), (width, column)):
        half = int(side * np.sqrt(1 - keep)) // 2
        spans.append(slice(max(centre - half, 0), min(centre + half, side)))
    return spans[0], spans[1]


class _MixingCollator(ABC):
    """Collate rows, make labels soft, and mix the batch with a permutation of itself.

    One permutation and one lambda a batch, as in the published code of CutMix.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 1.0,
        probability: float = 0.5,
        label_smoothing: float = 0.0,
        seed: int | None = None,
    ):
        if num_classes < 1:
            raise ValueError(f"num_classes is {num_classes}; allowed is a whole number of at least 1")
        if not alpha > 0:
            raise ValueError(f"alpha is {alpha}; allowed is a number above 0")
        if not 0 <= probability <= 1:
            raise ValueError(f"probability is {probability}; allowed is a number from 0 to 1")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; allowed is a number from 0 up to 1")
        self.num_classes, self.alpha, self.probability = num_classes, alpha, probability
        self.label_smoothing, self.seed = label_smoothing, seed

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate rows of `pixel_values` (C, height, width) and an integer `labels`.

        Args:
            rows: of one batch. What else they hold is collated too.

        Returns:
            `pixel_values` (B, C, height, width) and `labels` (B, K) float32 whose rows sum to 1.

        Raises:
            ValueError: for a label outside 0 ... K - 1, or a seed without `epoch` and `index` in the rows.
        """
        batch = default_collate(list(rows))
        return self.mix_batch({**batch, "labels": self.targets(batch["labels"])}, self.generator(rows))

    def mix_batch(self, batch: dict[str, torch.Tensor], rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Mix a batch that is collated and may be on a device.

        Args:
            batch: with `pixel_values` (B, C, height, width) and `labels` (B, K) as `targets` gives them.
            rng: what `generator` gave for its rows.

        Returns:
            The batch.
        """
        labels = batch["labels"]
        if rng.random() < self.probability:
            order = torch.from_numpy(rng.permutation(len(labels))).to(labels.device)
            batch["pixel_values"], keep = self.mix(batch["pixel_values"], order, rng)
            labels = keep * labels + (1 - keep) * labels[order]
        return {**batch, "labels": labels}

    @abstractmethod
    def mix(self, images: torch.Tensor, order: torch.Tensor, rng: np.random.Generator) -> tuple[torch.Tensor, float]:
        """Mix (B, C, height, width) with its permutation; returns the mixture and the share of the first."""

    def generator(self, rows: Sequence[dict[str, Any]]) -> np.random.Generator:
        """A generator for this batch alone: a collator that owned one would be copied, state and all, into workers.

        Args:
            rows: of the batch; the first names it.

        Returns:
            The generator.

        Raises:
            ValueError: for a seed without `epoch` and `index` in the rows.
        """
        if self.seed is None:
            # torch seeds each worker anew in each epoch
            return np.random.default_rng(int(torch.randint(2**63 - 1, ()).item()))
        if not {"epoch", "index"} <= set(rows[0]):
            raise ValueError("a collator with a seed needs rows with epoch and index, as TrainingSamples gives them")
        # A picture comes once an epoch, so its number names the batch.
        return np.random.default_rng((self.seed, int(rows[0]["epoch"]), int(rows[0]["index"]), 1))

    def targets(self, labels: torch.Tensor) -> torch.Tensor:
        """Soft labels y' = (1 - e) y + e / K.

        Args:
            labels: (B,) class numbers.

        Returns:
            (B, K) float32.

        Raises:
            ValueError: for a label outside 0 ... K - 1.
        """
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise ValueError(f"labels are {labels.tolist()}; allowed are 0 to {self.num_classes - 1}")
        hard = torch.nn.functional.one_hot(labels, self.num_classes).float()
        return hard * (1 - self.label_smoothing) + self.label_smoothing / self.num_classes


class CutMixCollator(_MixingCollator):
    """CutMix (Yun et al., 2019): a rectangle of another picture is pasted, and the label follows the pasted area.

    Args:
        num_classes: K.
        alpha: lambda is drawn from Beta(alpha, alpha); 1, the paper's value, is uniform.
        probability: of mixing a batch: .5 for CIFAR and 1 for ImageNet in the published code.
        label_smoothing: e of y' = (1 - e) y + e / K, applied once, before the mixing (which keeps it).
        seed: makes the draw of a batch depend on (seed, epoch, first picture) alone, on any number of workers; the
            rows need `epoch` and `index`. None draws from torch's generator, which differs by worker and by epoch.

    Raises:
        ValueError: for numbers outside what is allowed; it names them.
    """

    def mix(self, images: torch.Tensor, order: torch.Tensor, rng: np.random.Generator) -> tuple[torch.Tensor, float]:
        """Paste one box of the permuted pictures; the share is what is really left after clipping at the border."""
        height, width = images.shape[-2:]
        keep = rng.beta(self.alpha, self.alpha)
        rows, columns = cutmix_box(height, width, keep, int(rng.integers(height)), int(rng.integers(width)))
        mixed = images.clone()
        mixed[..., rows, columns] = images[order][..., rows, columns]
        return mixed, 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)


class MixUpCollator(_MixingCollator):
    """MixUp (Zhang et al., 2018): a convex combination of two pictures; a control without partial regions.

    Args:
        num_classes: K.
        alpha: lambda is drawn from Beta(alpha, alpha).
        probability: of mixing a batch.
        label_smoothing: as in `CutMixCollator`.
        seed: as in `CutMixCollator`.

    Raises:
        ValueError: for numbers outside what is allowed; it names them.
    """

    def mix(self, images: torch.Tensor, order: torch.Tensor, rng: np.random.Generator) -> tuple[torch.Tensor, float]:
        """Lambda x + (1 - lambda) x[order], with one lambda for the batch."""
        keep = float(rng.beta(self.alpha, self.alpha))
        return keep * images + (1 - keep) * images[order], keep

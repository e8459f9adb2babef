"""Linear heads on frozen patch maps: trained on windows, scored on whole pictures (paper C, after DINOv2)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hf_vitgeo.data.dense import IGNORE, resize_mask
from hf_vitgeo.probing.dense import (
    ConfusionMatrix,
    LinearDepth,
    LinearSegmentation,
    depth_metrics,
    sig_loss,
)
from hf_vitgeo.probing.patch_maps import PatchMaps, stitch


@dataclass(frozen=True)
class Windows:
    """The pictures of a split as windows, in the order of their patch maps.

    Attributes:
        places: for each picture the corners of its windows.
        sizes: height and width of each picture as it was cut.
        targets: for each picture its mask or depth map as stored.
        window: height and width of a window in pixels.
    """

    places: Sequence[Sequence[tuple[int, int]]]
    sizes: Sequence[tuple[int, int]]
    targets: Sequence[np.ndarray]
    window: tuple[int, int]

    def window_targets(self) -> np.ndarray:
        """(W, h, w): what each window shows, cut from the targets at the size of the picture; nearest neighbour."""
        height, width = self.window
        return np.stack(
            [
                resized[top : top + height, left : left + width]
                for places, size, target in zip(self.places, self.sizes, self.targets, strict=True)
                for resized in [resize_mask(target, *size)]
                for top, left in places
            ]
        )

    def by_picture(self) -> Iterator[tuple[np.ndarray, int]]:
        """Numbers of the windows of each picture, and the picture's number."""
        start = 0
        for number, places in enumerate(self.places):
            yield np.arange(start, start + len(places)), number
            start += len(places)


@dataclass(frozen=True)
class Schedule:
    """How a head is trained. Defaults: DINOv2's linear segmentation head (PROTOCOLS C.5).

    Attributes:
        steps: optimiser steps.
        batch_size: windows a step.
        rate: largest learning rate of AdamW.
        weight_decay: of AdamW.
        warmup_steps: linear, from nearly 0; the rest falls in a straight line to 0.
        seed: of the head and the order.
    """

    steps: int = 40_000
    batch_size: int = 16
    rate: float = 1e-3
    weight_decay: float = 1e-4
    warmup_steps: int = 1_500
    seed: int = 0


def segmentation_probe(
    train: PatchMaps,
    train_windows: Windows,
    test: PatchMaps,
    test_windows: Windows,
    num_classes: int,
    layer: int,
    with_cls: bool = False,
    schedule: Schedule = Schedule(),  # noqa: B008  frozen
    ignore_index: int = IGNORE,
    progress: Callable[[], Any] = lambda: None,
    on_prediction: Callable[[int, np.ndarray], Any] = lambda number, classes: None,
) -> dict[str, Any]:
    """BatchNorm and a 1x1 convolution, cross-entropy without the ignored pixels, mIoU of whole pictures.

    Args:
        train: patch maps of the training windows.
        train_windows: their pictures and masks.
        test: of the test windows.
        test_windows: likewise.
        num_classes: K.
        layer: whose patches.
        with_cls: whether [CLS] is put behind every patch.
        schedule: of the training.
        ignore_index: of pixels that do not count.
        progress: called after each step.
        on_prediction: called with the number of each test picture and its predicted classes, at the mask's size.

    Returns:
        As `dense.ConfusionMatrix.scores`.
    """
    torch.manual_seed(schedule.seed)
    head = LinearSegmentation(train.batch(np.arange(1), layer, with_cls).shape[1], num_classes)
    masks = torch.from_numpy(train_windows.window_targets())

    def loss(features: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        target = masks[rows].long()
        logits = head(features, tuple(target.shape[-2:]))
        if not (target != ignore_index).any():
            return logits.sum() * 0  # a batch of nothing but ignored pixels teaches nothing
        return nn.functional.cross_entropy(logits, target, ignore_index=ignore_index)

    _train(head, loss, train, layer, with_cls, schedule, progress)
    matrix = ConfusionMatrix(num_classes, ignore_index)
    for number, scores in _predict(head, test, test_windows, layer, with_cls):
        predicted = scores.argmax(dim=0).numpy()
        matrix.add(predicted, test_windows.targets[number])
        on_prediction(number, predicted)
    return matrix.scores()


def depth_probe(
    train: PatchMaps,
    train_windows: Windows,
    test: PatchMaps,
    test_windows: Windows,
    layer: int,
    with_cls: bool = True,
    min_depth: float = 1e-3,
    max_depth: float = 10.0,
    enlarge: int = 4,
    schedule: Schedule = Schedule(),  # noqa: B008  frozen
    progress: Callable[[], Any] = lambda: None,
    on_prediction: Callable[[int, np.ndarray], Any] = lambda number, metres: None,
) -> dict[str, float]:
    """A 1x1 convolution to 256 bins of depth, SigLoss, errors of whole pictures.

    Args:
        train: patch maps of the training windows.
        train_windows: their pictures and depth maps in metres, 0 where there is none.
        test: of the test windows.
        test_windows: likewise.
        layer: whose patches.
        with_cls: whether [CLS] is put behind every patch, as DINOv2 does for depth.
        min_depth: of the first bin, and of depths that count, in metres.
        max_depth: of the last bin, likewise.
        enlarge: as in `dense.LinearDepth`.
        schedule: of the training.
        progress: called after each step.
        on_prediction: called with the number of each test picture and its predicted metres, at the depth map's size.

    Returns:
        As `dense.depth_metrics`.
    """
    torch.manual_seed(schedule.seed)
    width = train.batch(np.arange(1), layer, with_cls).shape[1]
    head = LinearDepth(width, min_depth, max_depth, enlarge=enlarge)
    depths = torch.from_numpy(train_windows.window_targets())
    depths = torch.where((depths >= min_depth) & (depths <= max_depth), depths, 0)

    def loss(features: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        target = depths[rows].float()
        return sig_loss(head(features, tuple(target.shape[-2:]))[:, 0], target)

    _train(head, loss, train, layer, with_cls, schedule, progress)
    found = []
    for number, metres in _predict(head, test, test_windows, layer, with_cls):
        found.append(metres[0].numpy())
        on_prediction(number, found[-1])
    return depth_metrics(found, test_windows.targets, min_depth, max_depth)


def _train(
    head: nn.Module,
    loss: Callable[[torch.Tensor, np.ndarray], torch.Tensor],
    maps: PatchMaps,
    layer: int,
    with_cls: bool,
    schedule: Schedule,
    progress: Callable[[], Any],
) -> None:
    optimizer = torch.optim.AdamW(head.parameters(), lr=schedule.rate, weight_decay=schedule.weight_decay)
    warm, steps = min(schedule.warmup_steps, schedule.steps - 1), schedule.steps
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / (warm + 1) if step < warm else (steps - step) / max(steps - warm, 1)
    )
    rng, order = np.random.default_rng(schedule.seed), np.empty(0, np.int64)
    size = min(schedule.batch_size, len(maps.patches))
    head.train()
    for _ in range(steps):
        if len(order) < size:
            order = rng.permutation(len(maps.patches))
        rows, order = np.sort(order[:size]), order[size:]
        optimizer.zero_grad()
        loss(maps.batch(rows, layer, with_cls), rows).backward()
        optimizer.step()
        rate.step()
        progress()


@torch.no_grad()
def _predict(
    head: nn.Module, maps: PatchMaps, windows: Windows, layer: int, with_cls: bool
) -> Iterator[tuple[int, torch.Tensor]]:
    """Number of each picture and what the head says of its pixels, at the size of the stored target."""
    head.eval()
    for rows, number in windows.by_picture():
        scores = head(maps.batch(rows, layer, with_cls), windows.window)
        whole = stitch(scores, windows.places[number], windows.sizes[number])
        height, width = windows.targets[number].shape
        yield number, nn.functional.interpolate(whole[None], (height, width), mode="bilinear", align_corners=False)[0]

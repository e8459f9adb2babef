"""Scores of dense predictions: mean IoU from one confusion matrix, and depth errors over the pixels that have a depth.

The heads that make such predictions are linear (paper C, after DINOv2 and DINOv3): what they score is the features.
"""

# H x W pixels, K classes, B depth bins

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

#: DINOv2's linear depth head: added to each rectified bin, so that none is impossible.
_BIN_FLOOR = 0.1
#: SigLoss: what is added before the logarithm, and the share of the squared mean.
_SIG_EPSILON, _SIG_MEAN = 1e-3, 0.15


class ConfusionMatrix:
    """Counts of (true class, predicted class) over a whole data set, so that no batch weighs more than its pixels.

    Args:
        num_classes: K.
        ignore_index: of true pixels that count as neither right nor wrong.
    """

    def __init__(self, num_classes: int, ignore_index: int = 255):
        self.num_classes, self.ignore_index = num_classes, ignore_index
        self.counts = np.zeros((num_classes, num_classes), np.int64)

    def add(self, prediction: Any, mask: Any) -> None:
        """Count one picture or a batch.

        Args:
            prediction: classes, of any shape.
            mask: true classes, of the same shape.

        Raises:
            ValueError: for shapes that differ, or a class outside 0 ... K - 1.
        """
        prediction, mask = np.asarray(prediction).astype(np.int64), np.asarray(mask).astype(np.int64)
        if prediction.shape != mask.shape:
            raise ValueError(f"prediction {prediction.shape} and mask {mask.shape} differ in shape")
        counted = mask != self.ignore_index
        truth, said = mask[counted], prediction[counted]
        for name, classes in (("mask", truth), ("prediction", said)):
            if classes.size and not 0 <= classes.min() <= classes.max() < self.num_classes:
                raise ValueError(
                    f"the {name} has classes from {classes.min()} to {classes.max()}; allowed are 0 to "
                    f"{self.num_classes - 1}, and in the mask {self.ignore_index} for none"
                )
        pairs = np.bincount(truth * self.num_classes + said, minlength=self.num_classes**2)
        self.counts += pairs.reshape(self.num_classes, self.num_classes)

    def scores(self) -> dict[str, Any]:
        """IoU of each class, and what is made of it.

        Returns:
            `iou_per_class` (K,), intersection over union in [0, 1], NaN for a class that is neither in a mask nor
            predicted; `miou`, the mean of those that are; `pixel_accuracy`; `n_pixels` that counted. NaN, where no
            pixel counted.
        """
        intersection = np.diag(self.counts).astype(np.float64)
        union = self.counts.sum(0) + self.counts.sum(1) - intersection
        total = int(self.counts.sum())
        iou = np.where(union > 0, intersection / np.maximum(union, 1), np.nan)
        return {
            "iou_per_class": iou,
            "miou": float(np.nanmean(iou)) if total else float("nan"),
            "pixel_accuracy": float(intersection.sum() / total) if total else float("nan"),
            "n_pixels": total,
        }


def mean_iou(
    predictions: Iterable[Any], masks: Iterable[Any], num_classes: int, ignore_index: int = 255
) -> dict[str, Any]:
    """Mean intersection over union of a data set (as a fraction; papers print percent).

    Args:
        predictions: classes (H, W) of each picture.
        masks: true classes of each.
        num_classes: K, the background included where it is a class.
        ignore_index: of true pixels that count as neither right nor wrong. Never the background: false positives on it
            would vanish, and the mean would be one of recalls.

    Returns:
        As `ConfusionMatrix.scores`.

    Raises:
        ValueError: as `ConfusionMatrix.add` does, or for lists of different lengths.
    """
    matrix = ConfusionMatrix(num_classes, ignore_index)
    for prediction, mask in zip(predictions, masks, strict=True):
        matrix.add(prediction, mask)
    return matrix.scores()


def depth_metrics(
    predictions: Iterable[Any], truths: Iterable[Any], min_depth: float = 1e-3, max_depth: float = 10.0
) -> dict[str, float]:
    """Errors of depth maps over the pixels whose true depth is known and in range.

    Each error is taken over the pixels of a picture, then averaged over pictures, as DINOv3 does; `rmse_pooled` is
    over all pixels at once. Pictures without any such pixel are left out and counted.

    Args:
        predictions: metres (H, W) of each picture; brought into the range first.
        truths: metres of each; 0, NaN, infinite, or outside the range where it is not known.
        min_depth: in metres.
        max_depth: in metres.

    Returns:
        `rmse` and `rmse_pooled` in metres, `abs_rel`, `log_rmse`, `delta1` (share within a factor of 1.25), `n_images`
        that counted, `n_without_depth`. The errors are NaN where no picture counted.

    Raises:
        ValueError: for an impossible range, shapes or numbers of pictures that differ, or a prediction that is not
            finite where there is a depth.
    """
    if not 0 < min_depth < max_depth:
        raise ValueError(f"min_depth is {min_depth} and max_depth {max_depth}; allowed is 0 < min_depth < max_depth")
    rows, squares, pixels, without = [], 0.0, 0, 0
    for number, (given, true) in enumerate(zip(predictions, truths, strict=True)):
        given, true = np.asarray(given, dtype=np.float64), np.asarray(true, dtype=np.float64)
        if given.shape != true.shape:
            raise ValueError(f"picture {number}: prediction {given.shape} and truth {true.shape} differ in shape")
        known = np.isfinite(true) & (true >= min_depth) & (true <= max_depth)
        if not known.any():
            without += 1
            continue
        if not np.isfinite(given[known]).all():
            raise ValueError(f"picture {number}: the prediction is not finite where there is a depth")
        said, depth = given[known].clip(min_depth, max_depth), true[known]
        error = said - depth
        ratio = np.maximum(said / depth, depth / said)
        logs = np.log(said) - np.log(depth)
        rows.append(
            (
                np.sqrt((error**2).mean()),
                (np.abs(error) / depth).mean(),
                np.sqrt((logs**2).mean()),
                (ratio < 1.25).mean(),
            )
        )
        squares, pixels = squares + float((error**2).sum()), pixels + len(depth)
    means = np.mean(rows, axis=0) if rows else np.full(4, np.nan)
    found = dict(zip(("rmse", "abs_rel", "log_rmse", "delta1"), map(float, means), strict=True))
    pooled = float(np.sqrt(squares / pixels)) if pixels else float("nan")
    return {**found, "rmse_pooled": pooled, "n_images": len(rows), "n_without_depth": without}


def depth_from_bins(logits: torch.Tensor, min_depth: float, max_depth: float, dim: int = 1) -> torch.Tensor:
    """Depth as a mean of fixed depths, weighted by rectified scores that are divided by their sum (AdaBins' way).

    Args:
        logits: (..., B, ...) scores of the bins.
        min_depth: depth of the first bin in metres.
        max_depth: of the last one; those between stand at equal distances.
        dim: of the bins.

    Returns:
        Metres, without that dimension.
    """
    weights = logits.relu() + _BIN_FLOOR
    weights = weights / weights.sum(dim=dim, keepdim=True)
    shape = [1] * logits.ndim
    shape[dim] = -1
    bins = torch.linspace(min_depth, max_depth, logits.shape[dim], device=logits.device, dtype=logits.dtype)
    return (weights * bins.view(shape)).sum(dim=dim)


def sig_loss(prediction: torch.Tensor, truth: torch.Tensor, warm_up: bool = False) -> torch.Tensor:
    """DINOv2's scale-invariant loss: sqrt(Var(g) + .15 mean(g)^2), g = log(prediction + .001) - log(truth + .001).

    The variance is torch's, divided by n - 1, as in the code that DINOv2's depth heads were trained with.

    Args:
        prediction: metres.
        truth: metres of the same shape; 0 where it is not known.
        warm_up: the first steps take the second term alone.

    Returns:
        A scalar; 0, with a gradient, where fewer than two depths are known.

    Raises:
        ValueError: for shapes that differ.
    """
    if prediction.shape != truth.shape:
        raise ValueError(f"prediction {tuple(prediction.shape)} and truth {tuple(truth.shape)} differ in shape")
    known = truth > 0
    if int(known.sum()) < 2:
        return prediction.sum() * 0
    g = (prediction[known] + _SIG_EPSILON).log() - (truth[known] + _SIG_EPSILON).log()
    spread = _SIG_MEAN * g.mean() ** 2
    return (spread if warm_up else spread + g.var()).sqrt()


class LinearSegmentation(nn.Module):
    """BatchNorm and a 1x1 convolution: DINOv2's linear head on frozen patch maps.

    Args:
        in_dim: D.
        num_classes: K.
    """

    def __init__(self, in_dim: int, num_classes: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(in_dim)
        self.classify = nn.Conv2d(in_dim, num_classes, 1)
        nn.init.normal_(self.classify.weight, std=0.01)
        nn.init.zeros_(self.classify.bias)  # type: ignore[arg-type]

    def forward(self, features: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        """(b, D, rows, columns) -> (b, K, H, W) logits, enlarged bilinearly to `size`."""
        logits = self.classify(self.norm(features))
        return nn.functional.interpolate(logits, size=size, mode="bilinear", align_corners=False)


class LinearDepth(nn.Module):
    """A 1x1 convolution to bins of depth: DINOv2's linear depth head.

    Args:
        in_dim: D.
        min_depth: of the first bin in metres.
        max_depth: of the last one.
        num_bins: B (DINOv2: 256).
        enlarge: by how much the scores of the bins are enlarged before they become a depth (DINOv2: 4); with 1, depths
            are interpolated, which takes a small part of the time.
    """

    def __init__(self, in_dim: int, min_depth: float, max_depth: float, num_bins: int = 256, enlarge: int = 4):
        super().__init__()
        self.range, self.enlarge = (min_depth, max_depth), enlarge
        self.bins = nn.Conv2d(in_dim, num_bins, 1)
        nn.init.normal_(self.bins.weight, std=0.01)
        nn.init.zeros_(self.bins.bias)  # type: ignore[arg-type]

    def forward(self, features: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        """(b, D, rows, columns) -> (b, 1, H, W) metres."""
        # a 1x1 convolution and an interpolation may change places: convolve the smaller map
        scores = self.bins(features)
        if self.enlarge > 1:
            scores = nn.functional.interpolate(scores, scale_factor=self.enlarge, mode="bilinear", align_corners=False)
        depth = depth_from_bins(scores, *self.range)[:, None]
        return nn.functional.interpolate(depth, size=size, mode="bilinear", align_corners=False)

"""Point-in-box: does the patch that is most like [CLS] lie on the object?

PiB of "Vision Transformers Need More Than Registers" (Shi, Yu and Yang, arXiv 2602.22394), which paper C takes over:
the share of images whose best-scored patch lies in the ground-truth box. Images go through Resize(256) and
CenterCrop(224), and the box with them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

EDGES = ("published", "exact")


def point_in_box(
    scores: Any,
    boxes: Sequence[Any],
    image_sizes: Any,
    resize: int | None = 256,
    crop: int = 224,
    edges: str = "published",
    single_object: bool = True,
) -> float:
    """The share of images whose best patch lies in a box (PiB, as a fraction).

    Args:
        scores: (n, rows, columns) of one grid, such as cosines of each patch with [CLS]. Of equal scores the first
            one counts.
        boxes: for each image its boxes (k, 4) as [x0, y0, x1, y1] in pixels of the stored image, end exclusive.
        image_sizes: (n, 2) height and width of the stored images.
        resize: length of the shorter side before the crop; None where the whole image is squeezed to `crop`.
        crop: side of the square that the model sees, in pixels.
        edges: "published": every patch from the one with the box's first pixel to the one at its end, inclusive, so
            that a patch counts which the box only borders, and a box outside the crop counts as the nearest patch.
            "exact": patches that the box covers in part; images whose boxes are all outside the crop are left out.
        single_object: leave out images with several boxes, as the published protocol does; otherwise any box counts.

    Returns:
        A float in [0, 1]; NaN where no image is left.

    Raises:
        ValueError: for shapes that do not fit, a box without area, scores that are not finite, or another `edges`.
    """
    found = hits(scores, boxes, image_sizes, resize, crop, edges, single_object)
    return float(np.nanmean(found)) if np.isfinite(found).any() else float("nan")


def hits(
    scores: Any,
    boxes: Sequence[Any],
    image_sizes: Any,
    resize: int | None = 256,
    crop: int = 224,
    edges: str = "published",
    single_object: bool = True,
) -> np.ndarray:
    """Whether the best patch of each image lies in a box.

    Args:
        scores: as in `point_in_box`, and so are the others.
        boxes: of each image.
        image_sizes: height and width of each.
        resize: shorter side before the crop.
        crop: side of what the model sees.
        edges: which patches a box has.
        single_object: whether images with several boxes are left out.

    Returns:
        (n,) float64: 1, 0, or NaN for an image that is left out.

    Raises:
        ValueError: as `point_in_box` does.
    """
    scores, sizes = np.asarray(scores, dtype=np.float64), np.asarray(image_sizes)
    if edges not in EDGES:
        raise ValueError(f"edges is {edges!r}; allowed are {', '.join(EDGES)}")
    if scores.ndim != 3 or sizes.shape != (len(scores), 2) or len(boxes) != len(scores):
        raise ValueError(
            f"scores {scores.shape}, {len(boxes)} lists of boxes and image_sizes {sizes.shape} do not fit: they need "
            "(n, rows, columns), n and (n, 2)"
        )
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=(1, 2)))
    if len(bad):
        raise ValueError(f"the scores of image {bad[0]} are not finite ({len(bad)} such images)")
    grid = scores.shape[1:]
    found = np.full(len(scores), np.nan)
    for index, (score, mine, size) in enumerate(zip(scores, boxes, sizes, strict=True)):
        mine = np.asarray(mine, dtype=np.float64).reshape(-1, 4)
        if not (mine[:, 2:] > mine[:, :2]).all():
            raise ValueError(f"a box of image {index} has no area: {mine.tolist()} (x0, y0, x1, y1, end exclusive)")
        if len(mine) == 0 or (single_object and len(mine) > 1):
            continue
        row, column = np.unravel_index(score.argmax(), grid)
        patches = [patches_of(box, tuple(size), grid, resize, crop, edges) for box in mine]
        covered = [
            top <= row <= bottom and left <= column <= right
            for top, left, bottom, right in patches
            if top <= bottom and left <= right
        ]
        if covered:
            found[index] = float(any(covered))
    return found


def patches_of(
    box: Any,
    image_size: tuple[int, int],
    grid_size: tuple[int, int],
    resize: int | None = 256,
    crop: int = 224,
    edges: str = "published",
) -> tuple[int, int, int, int]:
    """The patches of a box after resize and crop.

    Args:
        box: [x0, y0, x1, y1] in pixels of the stored image, end exclusive.
        image_size: its height and width.
        grid_size: rows and columns of patches.
        resize: shorter side before the crop; None where the whole image is squeezed.
        crop: side of what the model sees.
        edges: as in `point_in_box`.

    Returns:
        First row, first column, last row, last column, all inclusive; the last before the first where there are none.
    """
    height, width = (int(side) for side in image_size)
    if resize is None:
        scale, shift = (crop / width, crop / height), (0, 0)
    else:
        # torchvision cuts the longer side down to whole pixels, and rounds the crop's corner down
        short = min(height, width)
        scale = (resize / short, resize / short)
        shift = ((int(resize * width / short) - crop) // 2, (int(resize * height / short) - crop) // 2)
    ends = []
    for axis, count in ((1, grid_size[0]), (0, grid_size[1])):
        low, high = (min(max(box[axis + end] * scale[axis] - shift[axis], 0), crop) for end in (0, 2))
        side = crop / count
        if edges == "published":
            ends.append((min(int(low // side), count - 1), min(int(high // side), count - 1)))
        else:
            ends.append((int(low // side), int(np.ceil(high / side)) - 1) if high > low else (0, -1))
    (top, bottom), (left, right) = ends
    return top, left, bottom, right

"""Masks and depth maps as they are stored, turned into classes and metres without a silent change of any number."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from PIL import Image

from hf_vitgeo.data.images import open_stored

#: What a mask says of a pixel that counts neither as right nor as wrong.
IGNORE = 255
DepthEncoding = Literal["millimetres", "kitti", "sunrgbd"]
#: Of depth maps with whole numbers; maps of floats are metres already.
ENCODINGS: tuple[str, ...] = ("millimetres", "kitti", "sunrgbd")


def decode_mask(source: Any) -> np.ndarray:
    """The class of every pixel: the numbers that the file stores, never the colours that a palette gives them.

    Args:
        source: a path, the bytes of a file, a mapping `{"bytes": ..., "path": ...}` as `datasets` stores pictures, a
            PIL image, or an array of integers (H, W).

    Returns:
        (H, W) int64; 255 where the pixel is to be ignored.

    Raises:
        ValueError: for a mask in colours (RGB), with an alpha channel or of floats; for one that cannot be decoded, or
            that has negative numbers.
    """
    if isinstance(source, np.ndarray):
        mask = source
    else:
        image = open_stored(source)
        if image.mode not in ("1", "L", "P", "I") and not image.mode.startswith("I;16"):
            raise ValueError(
                f"a mask of mode {image.mode} has colours, not classes; store it as grey (L) or with a palette (P)"
            )
        mask = np.asarray(image)
    if mask.ndim != 2 or mask.dtype.kind not in "biu":
        raise ValueError(f"a mask needs (H, W) whole numbers, got {mask.dtype} of shape {mask.shape}")
    mask = mask.astype(np.int64)
    if mask.size and mask.min() < 0:
        raise ValueError(f"a mask has the class {mask.min()}; allowed are whole numbers of at least 0")
    return mask


def reduce_zero_label(mask: np.ndarray) -> np.ndarray:
    """ADE20K's convention: 0 (nothing of its list) is ignored, and 1 to 150 become 0 to 149; 255 stays.

    Args:
        mask: (H, W) classes; not changed.

    Returns:
        A new mask.
    """
    shifted = np.asarray(mask).astype(np.int64) - 1
    return np.where((shifted < 0) | (np.asarray(mask) == IGNORE), IGNORE, shifted)


def remap_labels(mask: np.ndarray, mapping: Mapping[int, int]) -> np.ndarray:
    """Other numbers for classes, all at once, so that none is mapped twice.

    Args:
        mask: (H, W) classes; not changed.
        mapping: new number by old number; what it does not name is ignored (255), as in Cityscapes' 34 ids, of which
            19 are trained.

    Returns:
        A new mask.
    """
    mask = np.asarray(mask).astype(np.int64)
    table = np.full(max([int(mask.max(initial=0)), *mapping]) + 1, IGNORE, np.int64)
    for old, new in mapping.items():
        table[old] = new
    return table[mask]


def check_mask(mask: np.ndarray, num_classes: int, where: str, ignore_index: int = IGNORE) -> np.ndarray:
    """Refuse a class that does not exist.

    Args:
        mask: (H, W) classes.
        num_classes: K.
        where: what the message calls the mask.
        ignore_index: the number that stands for no class.

    Returns:
        The mask.

    Raises:
        ValueError: naming the first wrong class and what is allowed.
    """
    wrong = mask[(mask != ignore_index) & ((mask < 0) | (mask >= num_classes))]
    if wrong.size:
        raise ValueError(
            f"{where}: {wrong.size} pixels have classes outside 0 to {num_classes - 1} (and {ignore_index} for none), "
            f"such as {wrong[0]}"
        )
    return mask


def decode_depth(raw: Any, encoding: DepthEncoding = "millimetres") -> np.ndarray:
    """Depth in metres, 0 where there is none.

    Args:
        raw: as for `decode_mask`, with 16 bits; or an array or image of floats, which are metres already.
        encoding: of whole numbers. "millimetres": metres times 1,000, the usual one of depth cameras; "kitti": metres
            times 256; "sunrgbd": the three lowest bits stand at the top, and then millimetres.

    Returns:
        (H, W) float32 metres; 0 also for what was NaN, infinite or negative.

    Raises:
        ValueError: for 8 bits, colours, another encoding, or a file that cannot be decoded.
    """
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding is {encoding!r}; allowed are {', '.join(ENCODINGS)}")
    stored = raw if isinstance(raw, np.ndarray) else np.asarray(_depth_image(raw))
    if stored.ndim != 2:
        raise ValueError(f"a depth map needs (H, W) numbers, got shape {stored.shape}")
    if stored.dtype.kind == "f":
        metres = stored.astype(np.float32)
    elif stored.dtype.kind in "iu" and stored.dtype.itemsize > 1:
        if encoding == "sunrgbd":
            bits = stored.astype(np.uint16)
            stored = (bits >> 3) | (bits << 13)
        metres = stored.astype(np.float32) / np.float32(256 if encoding == "kitti" else 1000)
    else:
        raise ValueError(f"a depth map needs 16 bits or floats, got {stored.dtype}")
    return np.where(np.isfinite(metres) & (metres > 0), metres, 0).astype(np.float32)


def _depth_image(raw: Any) -> Image.Image:
    image = open_stored(raw)
    if image.mode not in ("I", "F") and not image.mode.startswith("I;16"):
        raise ValueError(f"a depth map of mode {image.mode} has 8 bits or colours; it needs 16 bits or floats")
    return image


def resize_mask(mask: np.ndarray, height: int, width: int) -> np.ndarray:
    """Nearest neighbour, so that no class appears that was not there.

    Args:
        mask: (H, W) classes, or depth in metres, whose holes must not bleed either.
        height: new height.
        width: new width.

    Returns:
        (height, width) of the same type.
    """
    rows = ((np.arange(height) + 0.5) * mask.shape[0] / height).astype(np.int64)
    columns = ((np.arange(width) + 0.5) * mask.shape[1] / width).astype(np.int64)
    return mask[rows[:, None], columns]


def boxes_from_xywh(boxes: Any) -> np.ndarray:
    """ImageNet's and COCO's [x, y, width, height] to [x0, y0, x1, y1], end exclusive.

    Args:
        boxes: (k, 4).

    Returns:
        (k, 4) float64.
    """
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    return np.concatenate((boxes[:, :2], boxes[:, :2] + boxes[:, 2:]), axis=1)


def boxes_from_inclusive(boxes: Any) -> np.ndarray:
    """Tiny-ImageNet's [x0, y0, x1, y1] with the last pixel inside to the same with the end exclusive.

    Args:
        boxes: (k, 4) or (4,).

    Returns:
        (k, 4) float64.
    """
    return np.asarray(boxes, dtype=np.float64).reshape(-1, 4) + [0, 0, 1, 1]

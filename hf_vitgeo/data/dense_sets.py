"""Splits with a mask or a depth map for each picture, from any Hub id or folder."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from hf_vitgeo.data import scenes
from hf_vitgeo.data.columns import IMAGE_NAMES
from hf_vitgeo.data.datasets import subset_rows
from hf_vitgeo.data.dense import DepthEncoding, decode_depth, decode_mask, reduce_zero_label
from hf_vitgeo.data.images import decode_row
from hf_vitgeo.data.sources import open_split

#: Usual names of the columns, in order.
TARGET_NAMES = {
    "segmentation": ("mask", "annotation", "label", "segmentation", "semantic_segmentation"),
    "depth": ("depth", "depth_map", "depth_gt"),
}
#: Side of the rendered scenes in pixels.
SCENES_SIZE = 64


@dataclass(frozen=True)
class DenseSplit:
    """Pictures and targets by number, decoded when they are asked for.

    Attributes:
        table: an undecoded `datasets.Dataset` with `image` and `target`.
        rows: number of each row in the whole split, for messages.
        decode: what turns a stored target into an array.
        origin: what messages call the split.
    """

    table: Any
    rows: np.ndarray
    decode: Any
    origin: str

    def __len__(self) -> int:
        return len(self.rows)

    def image(self, number: int) -> Image.Image:
        """A picture of mode RGB."""
        return decode_row(self.table[int(number)]["image"], int(self.rows[number]), self.origin)

    def target(self, number: int) -> np.ndarray:
        """(H, W) classes int64, or metres float32; refused where it cannot be read."""
        try:
            return self.decode(self.table[int(number)]["target"])
        except (ValueError, OSError, TypeError) as error:
            raise ValueError(f"row {self.rows[number]} of {self.origin}: {error}") from error


def open_dense(
    dataset_name: str,
    split: str,
    task: str,
    image_column: str | None = None,
    target_column: str | None = None,
    max_samples: int | None = None,
    seed: int = 0,
    zero_is_ignored: bool = False,
    depth_encoding: DepthEncoding = "millimetres",
) -> DenseSplit:
    """Open a split for a dense probe.

    Args:
        dataset_name: Hub id, local folder, or `scenes`.
        split: name of the split.
        task: "segmentation" or "depth".
        image_column: name of the column of pictures; the first of `columns.IMAGE_NAMES` where it is None.
        target_column: of the masks or depth maps; the first of `TARGET_NAMES` where it is None.
        max_samples: a seeded random subset of this size, or all.
        seed: of that subset.
        zero_is_ignored: whether masks count from 1 and say 0 for nothing, as ADE20K's do.
        depth_encoding: of whole numbers.

    Returns:
        The split.

    Raises:
        ValueError: for another task, an empty split, a column that is missing (it lists those that there are), or one
            column for both.
    """
    import datasets

    if task not in TARGET_NAMES:
        raise ValueError(f"task is {task!r}; allowed are {', '.join(TARGET_NAMES)}")
    origin = f"{dataset_name}, split {split!r}"
    if dataset_name == "scenes":
        table = scenes.load(split, SCENES_SIZE, max_samples)
    else:
        table = open_split(dataset_name, split)
    if len(table) == 0:
        raise ValueError(f"{origin} is empty")
    image = _column(table, image_column, IMAGE_NAMES, "image", origin)
    kind = "mask" if task == "segmentation" else "depth"
    target = _column(table, target_column, TARGET_NAMES[task], kind, origin)
    if image == target:
        raise ValueError(f"{origin}: {image!r} is both the image and the {kind} column")
    table = table.select_columns([image, target]).rename_columns({image: "image", target: "target"})
    for name in ("image", "target"):
        if isinstance(table.features[name], datasets.Image):
            table = table.cast_column(name, datasets.Image(decode=False))
    rows = np.arange(len(table))
    if max_samples is not None and max_samples < len(table):
        rows = subset_rows(len(table), max_samples, seed)
        table = table.select(rows)
    if task == "depth":
        return DenseSplit(table, rows, partial(_depth, encoding=depth_encoding), origin)
    return DenseSplit(table, rows, _mask_from_one if zero_is_ignored else _mask, origin)


def _column(table: Any, given: str | None, usual: tuple[str, ...], kind: str, origin: str) -> str:
    columns = ", ".join(map(repr, table.features))
    if given is not None:
        if given not in table.features:
            raise ValueError(f"{origin}: there is no {kind} column {given!r}; the columns are {columns}")
        return given
    found = [name for name in usual if name in table.features]
    if not found:
        raise ValueError(f"{origin}: no {kind} column found; name one of {columns} by --{kind}_column_name")
    return found[0]


def _mask(cell: Any) -> np.ndarray:
    return decode_mask(_stored(cell))


def _mask_from_one(cell: Any) -> np.ndarray:
    return reduce_zero_label(_mask(cell))


def _depth(cell: Any, encoding: DepthEncoding) -> np.ndarray:
    return decode_depth(_stored(cell), encoding)


def _stored(cell: Any) -> Any:
    """An array for a column of nested lists; what `images.open_stored` takes for anything else."""
    return np.asarray(cell) if isinstance(cell, list) else cell or {}

"""From a Hub id or a local folder to rows of a picture and a label, with every mistake named where it is found.

A row that `load_image_dataset` gives is `{"image": PIL RGB, "label": int}`. The stored data set keeps the encoded
pictures and one column more, `ROW_COLUMN`: a transform of `datasets` sees only the cells of a batch, so the number of
the row that a message names has to travel with the row. It survives `select`, `shuffle` and the omission of bad rows.
"""

import os
import warnings
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from hf_vitgeo.data.columns import LABEL_NAMES, find_columns, label_columns
from hf_vitgeo.data.images import decode_row, resize
from hf_vitgeo.data.sources import open_split

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

#: Holds the number of the row in its split, before any row was left out; not part of the rows that one reads.
ROW_COLUMN = "row"

#: The class of every row of a data set without labels.
UNLABELLED = "unlabelled"

#: Bare numbers from here on are identifiers or measurements, not labels: a model would need an output for each.
MAX_UNNAMED_CLASSES = 1_000_000

#: `to_uint8` refuses to hold more than this in memory: all of ImageNet at 224 pixels would be 180 GiB.
MAX_BYTES_IN_MEMORY = 8 * 2**30


def load_image_dataset(
    name_or_path: str | os.PathLike,
    split: str,
    image_column: str | None = None,
    label_column: str | None = None,
    skip_bad_images: bool = False,
    max_samples: int | None = None,
    seed: int = 0,
    needs_labels: bool = True,
) -> "datasets.Dataset":
    """Load one split of an image classification data set.

    Pictures are decoded by `images.load_rgb` when a row is read, by index, by slice or in a loop. Labels always come
    with class names: those of the data set, the sorted texts where labels are text, or the numbers themselves. Texts
    and bare numbers are read off this split alone, so compare `class_names` before using two such splits together.

    Args:
        name_or_path: a Hub id, or a local folder: pictures in one folder a class, Parquet files, or what
            `save_to_disk` wrote. What exists on this machine, begins with ".", "/" or "~", or is a `Path`, is local.
        split: name of the split, such as "train".
        image_column: name of the column of pictures; None finds it by its type, then by its usual names.
        label_column: name of the column of labels; None finds it likewise.
        skip_bad_images: decode every picture first and leave out, with a warning that counts and names them, the rows
            that cannot be read. Otherwise reading such a row is an error.
        max_samples: keep a seeded random subset of this many rows, in their order; None or more than there are keeps
            all. It is drawn before bad rows are left out, so fewer may remain.
        seed: seed of that subset.
        needs_labels: whether a data set without any column of labels is an error; otherwise all rows are of the one
            class `UNLABELLED`.

    Returns:
        A data set whose rows are `{"image": PIL image of mode RGB, "label": int}`. Reading a row whose picture is
        broken raises ValueError, which names the row (its number in the whole split) and the file where it is known.
        `dataset["label"]` decodes the pictures too; `dataset.select_columns("label")` does not.

    Raises:
        FileNotFoundError: for a local folder that does not exist or holds no data.
        NotADirectoryError: for a local file.
        ConnectionError: for a Hub id that is neither cached nor within reach.
        ValueError: for an unknown or empty split, a column that is missing or cannot be told from others, a label that
            is missing, negative, out of range or no whole number, `max_samples` below 1, or no readable picture.
    """
    import datasets

    if max_samples is not None and max_samples < 1:
        raise ValueError(f"max_samples must be at least 1, not {max_samples}")
    origin = f"{name_or_path}, split {split!r}"
    table = open_split(name_or_path, split)
    if len(table) == 0:
        raise ValueError(f"{origin} is empty")

    if not needs_labels and label_column is None and not label_columns(table.features):
        nothing = np.zeros(len(table), np.int64)
        label_column = LABEL_NAMES[0]
        table = table.add_column(label_column, nothing, feature=datasets.ClassLabel(names=[UNLABELLED]))
    image_column, label_column = find_columns(table.features, image_column, label_column, origin)
    table = table.select_columns([image_column, label_column])
    table = table.rename_columns({image_column: "image", label_column: "label"})
    labels, names = _check_labels(table.data.column("label"), table.features["label"], origin)
    # Replacing the column costs nothing; `class_encode_column` and `cast` would copy every picture into a cache file.
    table = table.remove_columns("label").add_column("label", labels, feature=datasets.ClassLabel(names=names))
    table = table.cast_column("image", datasets.Image(decode=False)).add_column(ROW_COLUMN, np.arange(len(labels)))
    if max_samples is not None and max_samples < len(table):
        table = table.select(subset_rows(len(table), max_samples, seed))
    if skip_bad_images:
        table = _leave_out_bad_rows(table, origin)
    return table.with_transform(partial(_decode_batch, origin=origin))


def class_names(dataset: "datasets.Dataset") -> list[str]:
    """Names of the classes, by label.

    Args:
        dataset: what `load_image_dataset` gives, or any data set whose "label" column is a ClassLabel.

    Returns:
        A list in which the name of label i stands at index i.
    """
    return list(dataset.features["label"].names)


def to_uint8(dataset: "datasets.Dataset", size: int | tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Decode and resize a whole data set once, into memory: for small pictures that are read many times.

    Args:
        dataset: what `load_image_dataset` gives, or any data set with an "image" column of type Image and a "label"
            column of integers.
        size: side of the pictures in pixels, or (height, width). The aspect ratio is not kept, as in `images.resize`.

    Returns:
        The pictures as uint8 of shape (N, height, width, 3), and the labels as int64 of shape (N,).

    Raises:
        ValueError: for a picture that cannot be read; it names the row.
        MemoryError: for more than `MAX_BYTES_IN_MEMORY`.
    """
    height, width = (size, size) if isinstance(size, int) else size
    needed = bytes_in_memory(len(dataset), (height, width))
    if needed > MAX_BYTES_IN_MEMORY:
        raise MemoryError(
            f"{len(dataset)} pictures of {height}x{width} pixels take {needed / 2**30:.0f} GiB; at most "
            f"{MAX_BYTES_IN_MEMORY / 2**30:.0f} GiB are decoded into memory: use fewer (max_samples)"
        )
    pictures = np.empty((len(dataset), height, width, 3), np.uint8)
    labels = np.empty(len(dataset), np.int64)
    for index, (row, cell, label) in enumerate(_encoded_rows(dataset, "decode")):
        pictures[index] = np.asarray(resize(decode_row(cell, row, "data set"), height, width))
        labels[index] = label
    return pictures, labels


def subset_rows(length: int, count: int, seed: int) -> np.ndarray:
    """A seeded random subset without replacement, in order.

    Args:
        length: how many rows there are.
        count: how many are wanted, at most `length`.
        seed: of the choice.

    Returns:
        (count,) row numbers.
    """
    return np.sort(np.random.default_rng(seed).choice(length, count, replace=False))


def bytes_in_memory(count: int, size: tuple[int, int]) -> int:
    """What `count` decoded RGB pictures of (height, width) take, in bytes."""
    return count * size[0] * size[1] * 3


def _check_labels(column: "pa.ChunkedArray", feature: Any, origin: str) -> tuple[np.ndarray, list[str]]:
    """Turn a column of labels into int64 of shape (N,) and the names of the classes, or name the first bad row."""
    import pyarrow as pa

    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise ValueError(f"{origin}: row {row} has no label (None)")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts, codes = np.unique(column.to_numpy().astype(str), return_inverse=True)
        return codes.astype(np.int64), texts.tolist()
    if not pa.types.is_integer(column.type):
        raise ValueError(f"{origin}: row 0 has the label {column[0].as_py()!r}, which is neither integer nor text")
    labels = column.to_numpy().astype(np.int64)
    unnamed = range(min(labels.max() + 1, MAX_UNNAMED_CLASSES))
    names = getattr(feature, "names", None) or [str(label) for label in unnamed]
    bad = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(bad):
        raise ValueError(
            f"{origin}: row {bad[0]} has the label {labels[bad[0]]}, outside 0..{len(names) - 1} "
            f"({len(bad)} such rows; -1 often marks a split without labels)"
        )
    return labels, names


def check_label(label: Any, num_classes: int, where: str) -> int:
    """Refuse a label that is missing or names no class.

    Args:
        label: as it is in the data.
        num_classes: how many there are.
        where: what the message calls the row.

    Returns:
        The label.

    Raises:
        ValueError: naming row and label.
    """
    if label is None:
        raise ValueError(f"{where} has no label (None)")
    if not 0 <= label < num_classes:
        raise ValueError(f"{where} has the label {label}, outside 0..{num_classes - 1} (-1 often marks test data)")
    return int(label)


def _leave_out_bad_rows(table: "datasets.Dataset", origin: str) -> "datasets.Dataset":
    good, reasons = [], []
    for index, (row, cell, _) in enumerate(_encoded_rows(table, "check")):
        try:
            decode_row(cell, row, origin)
            good.append(index)
        except ValueError as error:
            reasons.append(str(error))
    if not good:
        raise ValueError(f"{origin}: none of {len(table)} pictures can be read. The first: {reasons[0]}")
    if not reasons:
        return table
    summary = f"{origin}: left out {len(reasons)} of {len(table)} rows, whose pictures cannot be read:"
    warnings.warn("\n  ".join([summary, *reasons[:10], *["..."] * (len(reasons) > 10)]), stacklevel=3)
    return table.select(good)


def _encoded_rows(dataset: "datasets.Dataset", task: str) -> Iterator[tuple[int, Any, int]]:
    """Yield the number, the encoded picture and the label of each row, with a progress bar after two seconds."""
    import datasets

    raw = dataset.with_format(None).cast_column("image", datasets.Image(decode=False))
    with tqdm(total=len(raw), desc=f"{task} pictures", unit=" pictures", delay=2, disable=None) as progress:
        for start in range(0, len(raw), 1000):
            batch = raw[start : start + 1000]
            rows = batch.get(ROW_COLUMN, range(start, start + len(batch["label"])))
            yield from zip(rows, batch["image"], batch["label"], strict=True)
            progress.update(len(batch["label"]))


def _decode_batch(batch: dict[str, list], origin: str) -> dict[str, list]:
    """The transform of a loaded data set: encoded pictures in, PIL images out."""
    rows = batch.pop(ROW_COLUMN, None)
    if "image" in batch:
        # Whoever selects columns by hand may lose the numbers, but not the pictures.
        pairs = zip(batch["image"], rows or ["?"] * len(batch["image"]), strict=True)
        batch["image"] = [decode_row(cell, row, origin) for cell, row in pairs]
    return batch

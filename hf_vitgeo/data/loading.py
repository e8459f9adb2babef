"""One split of any data set, the rendered scenes included, as arrays: what training and analysis both start from."""

from typing import TYPE_CHECKING

from hf_vitgeo.data import datasets, scenes

if TYPE_CHECKING:
    import numpy as np


def load_arrays(
    dataset_name: str,
    split: str,
    size: int,
    image_column: str | None = None,
    label_column: str | None = None,
    skip_bad_images: bool = False,
    max_samples: int | None = None,
    seed: int = 0,
) -> "tuple[np.ndarray, np.ndarray, tuple[str, ...]]":
    """Decode a split once, at one size.

    Args:
        dataset_name: Hub id, local folder, or `scenes` for the rendered data set.
        split: name of the split.
        size: side in pixels.
        image_column: as in `datasets.load_image_dataset`, and so are the next four; the scenes need none of them, and
            of the scenes `max_samples` are the first ones, which are as random as any.
        label_column: name of the column of labels.
        skip_bad_images: leave out rows that cannot be read.
        max_samples: a seeded random subset of this size, or all.
        seed: seed of that subset.

    Returns:
        Pictures (N, size, size, 3) uint8, labels (N,) int64, and the class names in the order of the labels.

    Raises:
        ValueError: as `datasets.load_image_dataset` and `scenes.load` do.
    """
    if dataset_name == "scenes":
        table = scenes.load(split, size, max_samples)
    else:
        table = datasets.load_image_dataset(
            dataset_name, split, image_column, label_column, skip_bad_images, max_samples, seed
        )
    images, labels = datasets.to_uint8(table, size)
    return images, labels, tuple(datasets.class_names(table))

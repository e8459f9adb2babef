"""One split of any data set, the rendered scenes included: what training and analysis both start from."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_vitgeo.data import datasets, scenes

if TYPE_CHECKING:
    import numpy as np

    from hf_vitgeo.data.sampling import ImageSource


@dataclass(frozen=True)
class ImageSplit:
    """A split whose pictures can be asked for by number.

    Attributes:
        source: pictures and labels.
        class_names: by label.
        fingerprint: other rows, another text; the same rows of the same files, the same one.
    """

    source: "ImageSource"
    class_names: tuple[str, ...]
    fingerprint: str = ""

    @property
    def labels(self) -> "np.ndarray":
        """(N,) int64, without decoding a picture."""
        return self.source.labels

    def __len__(self) -> int:
        return len(self.source)


def name_in_results(dataset_name: str) -> str:
    """What records call a data set: its id, or the name of its folder without the path of one machine.

    Args:
        dataset_name: Hub id, local folder, or `scenes`.

    Returns:
        The name.
    """
    return Path(dataset_name).resolve().name if Path(dataset_name).exists() else dataset_name


def open_table(
    dataset_name: str,
    split: str,
    size: int,
    image_column: str | None = None,
    label_column: str | None = None,
    skip_bad_images: bool = False,
    max_samples: int | None = None,
    seed: int = 0,
    needs_labels: bool = True,
) -> Any:
    """Open a split without decoding it.

    Args:
        dataset_name: Hub id, local folder, or `scenes` for the rendered data set.
        split: name of the split.
        size: side of the scenes in pixels; other data sets keep their own.
        image_column: as in `datasets.load_image_dataset`, and so are the next four; the scenes need none of them, and
            of the scenes `max_samples` are the first ones, which are as random as any.
        label_column: name of the column of labels.
        skip_bad_images: leave out rows that cannot be read.
        max_samples: a seeded random subset of this size, or all.
        seed: seed of that subset.
        needs_labels: as in `datasets.load_image_dataset`.

    Returns:
        A `datasets.Dataset` with `image` and `label`.

    Raises:
        ValueError: as `datasets.load_image_dataset` and `scenes.load` do.
    """
    if dataset_name == "scenes":
        return scenes.load(split, size, max_samples)
    return datasets.load_image_dataset(
        dataset_name, split, image_column, label_column, skip_bad_images, max_samples, seed, needs_labels
    )


def load_split(
    dataset_name: str, split: str, size: tuple[int, int], keep_original: bool = False, **options: Any
) -> ImageSplit:
    """Load a split for training: decoded once into memory where it is small, else decoded when it is asked for.

    Args:
        dataset_name: Hub id, local folder, or `scenes`.
        split: name of the split.
        size: height and width in pixels that the model takes.
        keep_original: whether the pictures are wanted as they are stored, because windows of them are resized; then
            nothing is kept in memory.
        **options: the other arguments of `open_table`.

    Returns:
        The split.

    Raises:
        ValueError: as `open_table` does; for small data sets also for a picture that cannot be read.
    """
    from hf_vitgeo.data.sampling import ArrayImages, RowImages

    table = open_table(dataset_name, split, max(size), **options)
    names = tuple(datasets.class_names(table))
    if keep_original or datasets.bytes_in_memory(len(table), size) > datasets.MAX_BYTES_IN_MEMORY:
        return ImageSplit(RowImages(table), names, table._fingerprint)
    return ImageSplit(ArrayImages(*datasets.to_uint8(table, size)), names, table._fingerprint)


def load_arrays(
    dataset_name: str, split: str, size: tuple[int, int], **options: Any
) -> "tuple[np.ndarray, np.ndarray, tuple[str, ...]]":
    """Decode a split once, at one size.

    Args:
        dataset_name: Hub id, local folder, or `scenes`.
        split: name of the split.
        size: height and width in pixels; scenes are rendered as squares and then resized.
        **options: the other arguments of `open_table`.

    Returns:
        Pictures (N, height, width, 3) uint8, labels (N,) int64, and the class names in the order of the labels.

    Raises:
        ValueError: as `open_table` does, and for a picture that cannot be read.
        MemoryError: when the pictures would take more than `datasets.MAX_BYTES_IN_MEMORY`.
    """
    table = open_table(dataset_name, split, max(size), **options)
    images, labels = datasets.to_uint8(table, size)
    return images, labels, tuple(datasets.class_names(table))

"""Data sets of the papers by Hub id: columns, splits, classes, size and normalisation. No torch, no network."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CatalogEntry:
    """What one has to know to train on a data set of the Hub.

    Attributes:
        image_column: name of the column of pictures.
        label_column: name of the column of classes.
        num_classes: number of classes; checked against the data when it is loaded.
        eval_split: the split with labels that papers report on.
        image_size: side at which the papers train on it, in pixels.
        normalization: name in `transforms.NORMALIZATION`.
        normalization_source: who says so.
    """

    image_column: str
    label_column: str
    num_classes: int
    eval_split: str
    image_size: int
    normalization: str
    normalization_source: str


_OURS = "paper B names none; [-1, 1] favours no data set"
_USUAL = "paper A's code (ImageNet statistics)"

#: By Hub id. Other ids and local folders need no entry: columns are found from the features.
CATALOG: dict[str, CatalogEntry] = {
    "uoft-cs/cifar10": CatalogEntry("img", "label", 10, "test", 32, "half", _OURS),
    # coarse_label, the 20 superclasses, is there too
    "uoft-cs/cifar100": CatalogEntry("img", "fine_label", 100, "test", 32, "half", _OURS),
    "zh-plus/tiny-imagenet": CatalogEntry("image", "label", 200, "valid", 64, "half", _OURS),
    "clane9/imagenet-100": CatalogEntry("image", "label", 100, "validation", 224, "imagenet", _USUAL),
    # gated: accept its terms on the Hub first; its test split has the label -1 throughout
    "ILSVRC/imagenet-1k": CatalogEntry("image", "label", 1000, "validation", 224, "imagenet", _USUAL),
}


def entry(dataset_name: str) -> CatalogEntry | None:
    """The entry of a Hub id, whatever its case; None where there is none.

    Args:
        dataset_name: Hub id or folder.

    Returns:
        What is known of it.
    """
    known = {name.lower(): found for name, found in CATALOG.items()}
    return known.get(dataset_name.lower())

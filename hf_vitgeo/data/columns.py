"""Which columns of a data set hold the pictures and the labels."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets

#: Names that are tried where no column, or more than one, has the type that says what it holds.
IMAGE_NAMES = ("image", "images", "img", "jpg", "jpeg", "png", "webp", "pixels", "pixel_values", "picture")
LABEL_NAMES = ("label", "labels", "fine_label", "target", "class", "cls")


def find_columns(
    features: "datasets.Features", image_column: str | None, label_column: str | None, origin: str
) -> tuple[str, str]:
    """Names of the columns of pictures and labels.

    Args:
        features: of the data set.
        image_column: as given by the user; None finds the only one of the right type, else of a usual name.
        label_column: likewise.
        origin: what messages call the data set.

    Returns:
        Both names.

    Raises:
        ValueError: for a column that is missing, holds no pictures, or cannot be told from others; it lists them.
    """
    import datasets

    typed_images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    named_images = [name for name in features if name.lower() in IMAGE_NAMES and _may_hold_pictures(features[name])]
    image_column = _one_of(typed_images or named_images, image_column, "image", features, origin)
    if not _may_hold_pictures(features[image_column]):
        raise ValueError(f"{origin}: column {image_column!r} holds no pictures but {features[image_column]}")
    return image_column, _one_of(label_columns(features), label_column, "label", features, origin)


def label_columns(features: "datasets.Features") -> list[str]:
    """Columns that may hold the labels: by their type, else by their usual names.

    Args:
        features: of the data set.

    Returns:
        Their names; empty where there is none.
    """
    import datasets

    typed = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    return typed or [name for name in features if name.lower() in LABEL_NAMES]


def _one_of(candidates: list[str], given: str | None, kind: str, features: "datasets.Features", origin: str) -> str:
    columns = ", ".join(map(repr, features))
    if given is not None:
        if given not in features:
            raise ValueError(f"{origin}: there is no {kind} column {given!r}; the columns are {columns}")
        return given
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ValueError(
            f"{origin}: {', '.join(map(repr, candidates))} may each be the {kind} column: use --{kind}_column_name"
        )
    raise ValueError(f"{origin}: no {kind} column found; name one of {columns} by --{kind}_column_name")


def _may_hold_pictures(feature: Any) -> bool:
    """Whether a column's cells can be files of pictures: Image, bytes, paths, or a struct of both."""
    if isinstance(feature, dict):
        return {"bytes", "path"} <= set(feature)
    return getattr(feature, "dtype", None) in ("PIL.Image.Image", "binary", "large_binary", "string")

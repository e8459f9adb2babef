"""Train a ViTGeo classifier on a Hub data set, a local folder or the rendered scenes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_vitgeo.training.arguments import SupervisedArguments, parse

if TYPE_CHECKING:
    from hf_vitgeo.training.supervised import ImageSplit


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, load the data, train and say where the run is.

    Args:
        argv: command line; that of the process where it is None.
    """
    args = parse(SupervisedArguments, argv, __doc__, "train_supervised.py")
    run(args)


def run(args: SupervisedArguments) -> None:
    """Train with parsed arguments.

    Args:
        args: see `SupervisedArguments`.
    """
    from hf_vitgeo.training.supervised import build_config, train

    # Built once with stand-ins for the classes: impossible values are refused before any data is read.
    size = build_config(args, ("one", "another")).image_size
    assert isinstance(size, int)  # flags and presets give one number for both sides
    train_data = load_split(args, args.train_split, size, args.max_train_samples)
    eval_data = load_split(args, args.eval_split, size, args.max_eval_samples)
    done = train(args, build_config(args, train_data.class_names), train_data, eval_data)
    accuracy = done.args().get("eval_accuracy")
    if accuracy is not None:
        print(f"{args.label}: accuracy {accuracy:.3f} on {len(eval_data.labels)} pictures; run in {done.path}")


def load_split(args: SupervisedArguments, split: str, size: int, max_samples: int | None) -> "ImageSplit":
    """Decode a split once, at the model's size.

    Args:
        args: names the data set and its columns.
        split: name of the split.
        size: side in pixels.
        max_samples: a seeded random subset of this size, or all.

    Returns:
        The pictures, labels and class names.
    """
    from hf_vitgeo.data.loading import load_arrays
    from hf_vitgeo.training.supervised import ImageSplit

    return ImageSplit(
        *load_arrays(
            args.dataset_name,
            split,
            size,
            args.image_column_name,
            args.label_column_name,
            args.skip_bad_images,
            max_samples,
            args.seed,
        )
    )

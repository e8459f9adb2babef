"""What the training commands read and record: the splits that the flags ask for, and measurements over time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hf_vitgeo.data.catalog import entry
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.loop_arguments import LoopArguments

if TYPE_CHECKING:
    from hf_vitgeo.analysis.samples import Sample
    from hf_vitgeo.training.building import PictureFormat
    from hf_vitgeo.training.loaders import Split
    from hf_vitgeo.training.loop import OnMeasure


def load(
    args: LoopArguments,
    split: str,
    pictures: "PictureFormat",
    max_samples: int | None,
    keep_original: bool = False,
    needs_labels: bool = True,
) -> "Split":
    """Open a split as the flags ask for.

    Args:
        args: names the data set and its columns.
        split: name of the split.
        pictures: what the model takes.
        max_samples: a seeded random subset of this size, or all.
        keep_original: whether windows of the stored pictures are wanted.
        needs_labels: whether a data set without labels is an error; a stream's rows always need them.

    Returns:
        A split in memory, one that is decoded when asked for, or a stream.

    Raises:
        ValueError: for data that does not fit; when the catalogue knows the data set, also for another number of
            classes.
    """
    from hf_vitgeo.data.loading import load_split
    from hf_vitgeo.data.streaming import load_stream

    columns: dict[str, Any] = {
        "image_column": args.image_column_name,
        "label_column": args.label_column_name,
        "skip_bad_images": args.skip_bad_images,
        "max_samples": max_samples,
        "seed": args.seed,
    }
    if args.streaming:
        if args.dataset_name == "scenes":
            raise ValueError("--streaming is for data that is read; scenes are rendered here")
        opened: Split = load_stream(args.dataset_name, split, buffer=args.shuffle_buffer_size, **columns)
    else:
        columns["needs_labels"] = needs_labels
        opened = load_split(args.dataset_name, split, pictures.size, keep_original, **columns)
    known, found = entry(args.dataset_name), len(opened.class_names)
    if known and found != known.num_classes and args.label_column_name == known.label_column:
        raise ValueError(f"{args.dataset_name} should have {known.num_classes} classes, but {split!r} has {found}")
    return opened


def measuring(
    args: LoopArguments,
    split: "Split",
    pictures: "PictureFormat",
    also: Callable[[Any], list[dict[str, Any]]] | None = None,
) -> "OnMeasure":
    """What `--measure_every` records: SSDT plain and under RPI, and every head, on a fixed sample.

    Args:
        args: parsed arguments.
        split: evaluation split; the sample is a seeded random part of it, or the first rows of a stream.
        pictures: what enters the model.
        also: gives more records of the model.

    Returns:
        A callback for the loop; the main process writes what it finds.
    """
    from accelerate import PartialState

    from hf_vitgeo.analysis.measure import measure

    sample = fixed_sample(args, split, str(args.eval_split), pictures, args.measure_images)
    run = RunDir(args.output_dir)

    def on_measure(step: int, model: Any) -> None:
        records = measure(
            model,
            sample,
            n_images=args.measure_images,
            n_permutations=args.measure_permutations,
            alphas=[],
            alpha_images=1,
            shifts=[],
            seed=args.seed,
            label=f"{args.label} at step {step}",
        )
        if also is not None:
            records += also(model)
        common = {"model": args.label, "seed": args.seed, "step": step}
        if PartialState().is_main_process:
            run.append_results([{**common, **row} for row in records])

    return on_measure


def fixed_sample(args: LoopArguments, split: "Split", name: str, pictures: "PictureFormat", count: int) -> "Sample":
    """Decoded pictures for measurements.

    Args:
        args: parsed arguments.
        split: a seeded random part of it is taken, or the first rows of a stream.
        name: of the split.
        pictures: what enters the model.
        count: how many.

    Returns:
        The sample.
    """
    from hf_vitgeo.analysis.samples import sample_of
    from hf_vitgeo.data.loading import ImageSplit, name_in_results
    from hf_vitgeo.data.streaming import first_images

    return sample_of(
        split.source if isinstance(split, ImageSplit) else first_images(split, count),
        count,
        args.seed,
        name_in_results(args.dataset_name),
        name,
        pictures.size,
        pictures.mean,
        pictures.std,
        args.per_device_eval_batch_size,
    )

"""Train a ViTGeo classifier on a Hub data set, a local folder or the rendered scenes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hf_vitgeo.data.catalog import entry
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.command_line import parse
from hf_vitgeo.training.loop_arguments import condition_name

if TYPE_CHECKING:
    from hf_vitgeo.training.building import PictureFormat
    from hf_vitgeo.training.loaders import Split
    from hf_vitgeo.training.supervised import OnMeasure


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

    Raises:
        SystemExit: with one line, for a folder that is in use, a model that is impossible, data that cannot be read, a
            loss that is not finite, or a checkpoint that cannot be written; with status 143 after SIGTERM.
    """
    try:
        # before torch is imported; the loop waits for all processes before one of them writes
        RunDir(args.output_dir).refuse_if_used(args.overwrite_output_dir, bool(args.resume_from_checkpoint))
        from hf_vitgeo.training.building import build_model, picture_format

        pictures = picture_format(args)
        train_split = load(args, args.train_split, pictures, args.max_train_samples, args.crop == "resized")
        eval_split = load(args, str(args.eval_split), pictures, args.max_eval_samples)
        model = build_model(args, train_split.class_names)
        if args.model_name_or_path and args.model_label is None:
            args.model_label = label_of(model.config)
        from accelerate import PartialState

        from hf_vitgeo.training.supervised import train

        on_measure = measuring(args, eval_split, pictures) if args.measure_every else None
        done = train(args, model, pictures, train_split, eval_split, on_measure)
    except (ValueError, OSError, MemoryError, FloatingPointError) as error:
        raise SystemExit(f"train_supervised.py: {error}") from error
    # Only now: a state that is made before the Accelerator does not see that it was launched on CPUs.
    if PartialState().is_main_process:
        accuracy = done.args()["eval_accuracy"]
        said = "not evaluated" if accuracy is None else f"accuracy {accuracy:.3f}"
        print(f"{args.label}: {said} on {args.eval_split} of {args.dataset_name}; run in {done.path}")


def label_of(config: Any) -> str:
    """Name in results of a checkpoint that is trained on: its encoding (+rpt), or its family where it is none of ours.

    Args:
        config: of the model.

    Returns:
        The name.
    """
    encoding = getattr(config, "position_encoding", None)
    if encoding is None:
        return str(config.model_type)
    return condition_name(encoding, config.permute_tokens_in_training)


def load(
    args: SupervisedArguments,
    split: str,
    pictures: "PictureFormat",
    max_samples: int | None,
    keep_original: bool = False,
) -> "Split":
    """Open a split as the flags ask for.

    Args:
        args: names the data set and its columns.
        split: name of the split.
        pictures: what the model takes.
        max_samples: a seeded random subset of this size, or all.
        keep_original: whether windows of the stored pictures are wanted.

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
        opened = load_split(args.dataset_name, split, pictures.size, keep_original, **columns)
    known, found = entry(args.dataset_name), len(opened.class_names)
    if known and found != known.num_classes and args.label_column_name == known.label_column:
        raise ValueError(f"{args.dataset_name} should have {known.num_classes} classes, but {split!r} has {found}")
    return opened


def measuring(args: SupervisedArguments, split: "Split", pictures: "PictureFormat") -> "OnMeasure":
    """What `--measure_every` records: SSDT plain and under RPI, and every head, on a fixed sample.

    Args:
        args: parsed arguments.
        split: evaluation split; the sample is a seeded random part of it, or the first rows of a stream.
        pictures: what enters the model.

    Returns:
        A callback for the loop; the main process writes what it finds.
    """
    from accelerate import PartialState

    from hf_vitgeo.analysis.measure import measure
    from hf_vitgeo.analysis.samples import sample_of
    from hf_vitgeo.data.loading import ImageSplit, name_in_results
    from hf_vitgeo.data.streaming import first_images

    source = split.source if isinstance(split, ImageSplit) else first_images(split, args.measure_images)
    sample = sample_of(
        source,
        args.measure_images,
        args.seed,
        name_in_results(args.dataset_name),
        str(args.eval_split),
        pictures.size,
        pictures.mean,
        pictures.std,
        args.per_device_eval_batch_size,
    )
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
        common = {"model": args.label, "seed": args.seed, "step": step}
        if PartialState().is_main_process:
            run.append_results([{**common, **row} for row in records])

    return on_measure

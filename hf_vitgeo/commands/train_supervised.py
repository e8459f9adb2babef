"""Train a ViTGeo classifier on a Hub data set, a local folder or the rendered scenes."""

from collections.abc import Sequence
from typing import Any

from hf_vitgeo.commands.training_inputs import load, measuring
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.command_line import parse
from hf_vitgeo.training.loop_arguments import condition_name


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

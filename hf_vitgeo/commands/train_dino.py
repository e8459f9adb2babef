"""Pre-train a ViTGeo backbone with DINO on a Hub data set, a local folder or the rendered scenes; no labels needed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hf_vitgeo.commands.training_inputs import fixed_sample, load, measuring
from hf_vitgeo.data.datasets import UNLABELLED
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.command_line import parse
from hf_vitgeo.training.dino_arguments import KNN_NEIGHBOURS, DINOArguments

if TYPE_CHECKING:
    from hf_vitgeo.training.building import PictureFormat
    from hf_vitgeo.training.loaders import Split


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, load the data, pre-train and say where the run is.

    Args:
        argv: command line; that of the process where it is None.
    """
    run(parse(DINOArguments, argv, __doc__, "train_dino.py"))


def run(args: DINOArguments) -> None:
    """Pre-train with parsed arguments.

    Args:
        args: see `DINOArguments`.

    Raises:
        SystemExit: with one line, for a folder that is in use, crops or a model that are impossible, data that cannot
            be read, a loss that is not finite, or a checkpoint that cannot be written; with status 143 after SIGTERM.
    """
    try:
        # before torch is imported; the loop waits for all processes before one of them writes
        RunDir(args.output_dir).refuse_if_used(args.overwrite_output_dir, bool(args.resume_from_checkpoint))
        from hf_vitgeo.training.building import picture_format
        from hf_vitgeo.training.dino import build_student, crops_of, train

        pictures = picture_format(args)
        crops_of(args, pictures)
        # crops are cut from the pictures as they are stored
        train_split = load(args, args.train_split, pictures, args.max_train_samples, True, needs_labels=False)
        on_measure = None
        if args.measure_every:
            eval_split = load(args, str(args.eval_split), pictures, args.max_eval_samples, needs_labels=False)
            labelled = UNLABELLED not in (*train_split.class_names, *eval_split.class_names)
            knn = _knn(args, train_split, eval_split, pictures) if labelled else None
            on_measure = measuring(args, eval_split, pictures, knn)
        done = train(args, build_student(args), pictures, train_split, on_measure)
    except (ValueError, OSError, MemoryError, FloatingPointError) as error:
        raise SystemExit(f"train_dino.py: {error}") from error
    from accelerate import PartialState

    if PartialState().is_main_process:
        loss = done.args().get("loss")
        said = "not trained" if loss is None else f"loss {loss:.3f}"
        print(f"{args.label}: {said}; backbone in {done.checkpoint}, k-NN: python scripts/probe.py {done.path}")


def _knn(
    args: DINOArguments, train_split: "Split", eval_split: "Split", pictures: "PictureFormat"
) -> Callable[[Any], list[dict[str, Any]]]:
    """Weighted k-NN of fixed samples of both splits, as records."""
    from hf_vitgeo.probing.classification import knn_records
    from hf_vitgeo.probing.features import image_features

    bank = fixed_sample(args, train_split, args.train_split, pictures, args.knn_train_images)
    asked = fixed_sample(args, eval_split, str(args.eval_split), pictures, args.knn_eval_images)
    if len(bank.images) < KNN_NEIGHBOURS:
        raise ValueError(f"k-NN with {KNN_NEIGHBOURS} neighbours needs more than {len(bank.images)} training pictures")
    facts = {"dataset": asked.dataset, "split": asked.split, "sample_hash": asked.hash}

    def records(model: Any) -> list[dict[str, Any]]:
        train, test = (image_features(model, each.batches(), len(each.images)) for each in (bank, asked))
        classes = len(train_split.class_names)
        rows = knn_records(train, bank.labels, test, asked.labels, classes, [KNN_NEIGHBOURS])
        return [{**facts, **row} for row in rows]

    return records

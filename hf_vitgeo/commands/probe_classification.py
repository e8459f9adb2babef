"""What `scripts/probe.py` does for --task knn and linear: features of both splits, and their scores."""

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_vitgeo.commands.model_inputs import load_model, picture_size
from hf_vitgeo.commands.probe_arguments import ProbeArguments
from hf_vitgeo.runs import RunDir

if TYPE_CHECKING:
    import torch

    from hf_vitgeo.data.loading import ImageSplit

#: Side in pixels at which raw pixels are compared: at 224, one picture would have 150,528 of them.
RAW_SIZE = 32


def probe(args: ProbeArguments, dataset_name: str) -> list[dict[str, Any]]:
    """Score the backbone, and what it has to beat.

    Args:
        args: parsed arguments.
        dataset_name: Hub id, local folder, or `scenes`.

    Returns:
        Records without `model`, `seed` and `step`.

    Raises:
        ValueError: for splits with different classes, or more neighbours than pictures.
    """
    from accelerate.utils import set_seed

    from hf_vitgeo.data.loading import name_in_results

    model, processor = load_model(args.model, args.device)
    splits = [
        _open(args, dataset_name, name, maximum, picture_size(model.config, processor))
        for name, maximum in ((args.train_split, args.max_train_samples), (str(args.split), args.max_eval_samples))
    ]
    if splits[0].class_names != splits[1].class_names:
        raise ValueError("the two splits have different classes; name splits of one data set")
    if "knn" in args.task and max(args.k) > len(splits[0]):
        raise ValueError(f"--k is {max(args.k)}; allowed is at most the {len(splits[0])} training pictures")
    rows = _score(args, splits, [_features(args, model, processor, split) for split in splits], None)
    if args.controls:
        set_seed(args.seed)
        untrained = type(model)(copy.deepcopy(model.config)).to(model.device)
        found = [_features(args, untrained, processor, split, keep=False) for split in splits]
        rows += _score(args, splits, found, "random_weights")
        rows += _score(args, splits, [_raw_pixels(args, split) for split in splits], "raw_pixels")
    facts = {"dataset": name_in_results(dataset_name), "split": args.split}
    return [{**facts, **row} for row in rows]


def _open(args: ProbeArguments, dataset_name: str, split: str, maximum: int | None, size: Any) -> "ImageSplit":
    from hf_vitgeo.data.loading import load_split

    return load_split(
        dataset_name,
        split,
        size,
        image_column=args.image_column_name,
        label_column=args.label_column_name,
        skip_bad_images=args.skip_bad_images,
        max_samples=maximum,
        seed=args.seed,
    )


def _batches(args: ProbeArguments, split: "ImageSplit", transform: Any) -> "Iterator[torch.Tensor]":
    """Transformed pictures (B, ...) in order."""
    from torch.utils.data import DataLoader

    from hf_vitgeo.data.sampling import EvaluationSamples

    samples = EvaluationSamples(split.source, transform)
    return (
        batch["pixel_values"]
        for batch in DataLoader(samples, args.batch_size, num_workers=args.dataloader_num_workers)
    )


def _features(
    args: ProbeArguments, model: Any, processor: Any, split: "ImageSplit", keep: bool = True
) -> "tuple[np.ndarray, np.ndarray]":
    """What the linear probe sees of each picture, and what k-NN sees; the former is in a file where it is kept."""
    from tqdm.auto import tqdm

    from hf_vitgeo.data.transforms import eval_transform
    from hf_vitgeo.probing.features import fingerprint, image_features

    blocks, pooled = (args.num_blocks, args.average_pool) if "linear" in args.task else (1, False)
    size = picture_size(model.config, processor)
    transform = eval_transform(size, processor.image_mean, processor.image_std)
    path = None
    if keep:
        facts = (split.fingerprint, size, processor.image_mean, processor.image_std, blocks, pooled)
        path = RunDir(args.output_dir or args.model).path / "arrays" / f"features_{fingerprint(model, *facts)}.npy"
    width = model.config.hidden_size
    if path is not None and path.exists():
        found = np.load(path, mmap_mode="r")
    else:
        with tqdm(total=len(split), desc="features", unit="picture") as bar:
            found = image_features(
                model, _batches(args, split, transform), len(split), path, blocks, pooled, bar.update
            )
    return found, found[:, (blocks - 1) * width : blocks * width]


def _raw_pixels(args: ProbeArguments, split: "ImageSplit") -> "tuple[np.ndarray, np.ndarray]":
    """Every value of each picture at `RAW_SIZE`, from -1 to 1."""
    from hf_vitgeo.data.transforms import NORMALIZATION, eval_transform

    batches = _batches(args, split, eval_transform(RAW_SIZE, *NORMALIZATION["half"]))
    found = np.concatenate([batch.flatten(1).numpy() for batch in batches])
    return found, found


def _score(
    args: ProbeArguments,
    splits: "list[ImageSplit]",
    seen: "list[tuple[np.ndarray, np.ndarray]]",
    intervention: str | None,
) -> list[dict[str, Any]]:
    """Records of every task. Of each split, `seen` has what the linear probe sees and what k-NN sees."""
    from tqdm.auto import tqdm

    from hf_vitgeo.probing.classification import accuracy_record, knn_records, linear_probe

    (train, train_last), (test, test_last) = seen
    labels, test_labels = (split.labels for split in splits)
    classes, rows = len(splits[0].class_names), []
    if "knn" in args.task:
        rows += knn_records(train_last, labels, test_last, test_labels, classes, args.k, args.temperature)
    if "linear" in args.task:
        with tqdm(total=args.linear_epochs, desc="linear probe", unit="epoch") as bar:
            best = linear_probe(
                train,
                labels,
                test,
                test_labels,
                classes,
                epochs=args.linear_epochs,
                batch_size=args.linear_batch_size,
                seed=args.seed,
                progress=bar.update,
            )[0]
        kind = "" if intervention == "raw_pixels" else f"blocks={args.num_blocks}, "
        kind += "mean patch, " if args.average_pool and kind else ""
        rows.append(accuracy_record("linear_accuracy", best.right, f"{kind}rate={best.rate:g}"))
    return [{**row, "intervention": intervention} for row in rows]

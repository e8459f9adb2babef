"""Score a frozen backbone: weighted k-NN and a linear classifier, beside random weights and raw pixels."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_vitgeo.commands.model_inputs import complete, label_of, load_model, picture_size
from hf_vitgeo.runs import RunDir, check_record
from hf_vitgeo.training.command_line import parse
from hf_vitgeo.training.loop_arguments import flag

if TYPE_CHECKING:
    import torch

    from hf_vitgeo.data.loading import ImageSplit

TASKS = ("knn", "linear")
#: Side in pixels at which raw pixels are compared: at 224, one picture would have 150,528 of them.
RAW_SIZE = 32


@dataclass
class ProbeArguments:
    """Arguments of `scripts/probe.py`. Defaults: DINO's probes of ViT-S (PROTOCOLS C.2)."""

    model: str = field(metadata={"help": "Run folder, checkpoint folder or Hub id; may stand first without its flag."})
    task: list[str] = field(default_factory=lambda: ["knn"], metadata={"help": f"Any of {', '.join(TASKS)}."})
    output_dir: str | None = flag(None, "Run folder for the results; the model's own where it is a run folder.")
    model_label: str | None = flag(None, "Name of the model in results; that of its run where left out.")
    dataset_name: str | None = flag(None, "Hub id, local folder or 'scenes'; that of the run where left out.")
    train_split: str = flag("train", "Split whose labels the probe knows.")
    split: str | None = flag(None, "Split to score on; the run's evaluation split where left out, else 'test'.")
    image_column_name: str | None = flag(None, "Column of the pictures; found from the features where left out.")
    label_column_name: str | None = flag(None, "Column of the classes; found from the features where left out.")
    skip_bad_images: bool = flag(False, "Leave out pictures that cannot be read, and count them.")
    max_train_samples: int | None = flag(None, "Use a seeded random subset of the training split of this size.")
    max_eval_samples: int | None = flag(None, "Likewise of the split that is scored.")
    controls: bool = flag(True, "Also score the same backbone with random weights, and raw pixels.")
    k: list[int] = field(default_factory=lambda: [10, 20, 100, 200], metadata={"help": "Neighbours of k-NN."})
    temperature: float = flag(0.07, "Temperature of k-NN's votes.")
    num_blocks: int = flag(4, "Last blocks whose [CLS] the linear probe sees; k-NN sees the last one.")
    average_pool: bool = flag(False, "The linear probe also sees the mean patch token (DINO: for ViT-B, one block).")
    linear_epochs: int = flag(100, "Passes of the linear probe over the training features.")
    linear_batch_size: int = flag(1024, "Pictures a step of the linear probe.")
    batch_size: int = flag(128, "Pictures a forward pass.")
    dataloader_num_workers: int = flag(0, "Processes that prepare pictures.")
    device: str = flag("auto", "Where to run: auto, cpu, cuda, mps.")
    seed: int = flag(0, "Seed of subsets, random weights and the linear probe.")

    def __post_init__(self) -> None:
        names = "max_train_samples max_eval_samples num_blocks linear_epochs linear_batch_size batch_size"
        for name in names.split():
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} is {value}; allowed is a whole number of at least 1")
        if unknown := [task for task in self.task if task not in TASKS]:
            raise ValueError(f"--task is {unknown[0]!r}; allowed are {', '.join(TASKS)}")
        if not self.task or not self.k or min(self.k) < 1:
            raise ValueError(f"--task is {self.task} and --k {self.k}; both need a value, of --k at least 1")
        if not self.temperature > 0:
            raise ValueError(f"--temperature is {self.temperature}; allowed is a number above 0")


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, load model and pictures, probe, write the results and print them.

    Args:
        argv: command line; that of the process where it is None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-"):
        words.insert(0, "--model")
    args = parse(ProbeArguments, words, __doc__, "probe.py")
    for row in run(args):
        low, high = row["spread"]["low"], row["spread"]["high"]
        of = row["intervention"] or row["model"]
        print(f"{row['metric']:<16} {of:<16} {row['probe']:<28} {row['value']:.4f} ({low:.4f} to {high:.4f})")
    print(f"results in {Path(args.output_dir or args.model) / 'results.json'}")


def run(args: ProbeArguments) -> list[dict[str, Any]]:
    """Probe with parsed arguments and add the results to a run folder.

    Args:
        args: see `ProbeArguments`.

    Returns:
        The records of this measurement.

    Raises:
        SystemExit: with one line, for what cannot be probed.
    """
    trained = RunDir(args.model).args()
    try:
        dataset_name = complete(args, trained)
        rows = _probe(args, dataset_name)
    except (ValueError, OSError, MemoryError) as error:
        raise SystemExit(f"probe.py: {error}") from error
    label = label_of(args.model, args.model_label)
    common = {"model": label, "seed": trained.get("seed"), "step": trained.get("steps")}
    records = [check_record({**common, **row}) for row in rows]
    target = RunDir(args.output_dir or args.model)
    target.append_results(records)
    target.write_args({**vars(args), "dataset_name": dataset_name}, "probe.json")
    if not target.args():
        target.write_args({"model": label})
    return records


def _probe(args: ProbeArguments, dataset_name: str) -> list[dict[str, Any]]:
    import copy

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

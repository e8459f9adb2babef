"""Measure a trained model: accuracy, SSDT plain and under RPI, every head, the alpha sweep, fragility."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_vitgeo.commands.model_inputs import complete, label_of, load_model, picture_size
from hf_vitgeo.data.shifts import parse_attack, parse_shift
from hf_vitgeo.runs import RunDir, check_record
from hf_vitgeo.training.command_line import parse
from hf_vitgeo.training.loop_arguments import flag

if TYPE_CHECKING:
    from hf_vitgeo.analysis.samples import Sample


@dataclass
class AnalyzeArguments:
    """Arguments of `scripts/analyze.py`. Defaults: 1,000 pictures and 16 permutations (PROTOCOLS A.1)."""

    model: str = field(metadata={"help": "Run folder, checkpoint folder or Hub id; may stand first without its flag."})
    output_dir: str | None = flag(None, "Run folder for the results; the model's own where it is a run folder.")
    model_label: str | None = flag(None, "Name of the model in results; that of its run where left out.")
    dataset_name: str | None = flag(None, "Hub id, local folder or 'scenes'; that of the run where left out.")
    split: str | None = flag(None, "Split to measure on; the run's evaluation split where left out, else 'test'.")
    image_column_name: str | None = flag(None, "Column of the pictures; found from the features where left out.")
    label_column_name: str | None = flag(None, "Column of the classes; found from the features where left out.")
    skip_bad_images: bool = flag(False, "Leave out pictures that cannot be read, and count them.")
    n_images: int = flag(1000, "Pictures for structure, heads and the sweep's accuracy: a seeded random sample.")
    max_eval_samples: int | None = flag(None, "Pictures for accuracy and fragility; the whole split where left out.")
    n_permutations: int = flag(16, "Permutations of RPI, each shared by all pictures.")
    alpha_images: int = flag(256, "Pictures of the alpha sweep's SSDT, a subset of the sample.")
    alphas: list[float] = field(
        default_factory=lambda: [round(0.1 * tenth, 1) for tenth in range(11)],
        metadata={"help": "Factors on a learned or sinusoidal encoding, for the sweep."},
    )
    shifts: list[str] = field(
        default_factory=lambda: ["jpeg_q5", "blur_s2.5_k5"],
        metadata={"help": "Shifts such as jpeg_q5 or blur_s2.5_k5."},
    )
    attacks: list[str] = field(
        default_factory=list,
        metadata={"help": "Adversarial shifts such as fgsm_e4 or pgd_e2_n10 (needs hf-vitgeo[attacks])."},
    )
    shifted_dataset_name: str | None = flag(None, "Data set with other pictures of the classes, such as ImageNet-R.")
    shifted_split: str = flag("test", "Split of it.")
    batch_size: int = flag(128, "Pictures a forward pass.")
    device: str = flag("auto", "Where to run: auto, cpu, cuda, mps.")
    seed: int = flag(0, "Seed of sample, permutations and bootstrap.")

    def __post_init__(self) -> None:
        for name in ("n_images", "n_permutations", "alpha_images", "batch_size", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} is {value}; allowed is a whole number of at least 1")
        for name in self.shifts:
            parse_shift(name)
        for name in self.attacks:
            parse_attack(name)
        if self.attacks and importlib.util.find_spec("art") is None:
            raise ValueError("--attacks: it is not installed (pip install adversarial-robustness-toolbox)")
        if any(alpha < 0 for alpha in self.alphas):
            raise ValueError(f"--alphas are {self.alphas}; allowed are numbers of at least 0")


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, load model and pictures, measure, write the results.

    Args:
        argv: command line; that of the process where it is None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-"):
        words.insert(0, "--model")
    args = parse(AnalyzeArguments, words, __doc__, "analyze.py")
    records = run(args)
    from hf_vitgeo.reporting.verdicts import verdict

    folder = args.output_dir or args.model
    print(verdict(records).text)
    print(f"results in {Path(folder) / 'results.json'}; a report: python scripts/report.py {folder}")


def run(args: AnalyzeArguments) -> list[dict[str, Any]]:
    """Measure with parsed arguments and add the results to a run folder.

    Args:
        args: see `AnalyzeArguments`.

    Returns:
        The records of this measurement.

    Raises:
        SystemExit: with one line, for what cannot be measured: no data set named, no folder for the results, a model
            or data that cannot be read.
    """
    trained = RunDir(args.model).args()
    try:
        dataset_name = complete(args, trained)
        model, processor = load_model(args.model, args.device)
        sample, no_accuracy = _load_sample(args, dataset_name, model, processor)
        other = _load_other(args, model, processor) if args.shifted_dataset_name else None
    except (ValueError, OSError, MemoryError) as error:
        raise SystemExit(f"analyze.py: {error}") from error
    from hf_vitgeo.analysis.measure import measure

    records = measure(
        model,
        sample,
        n_images=args.n_images,
        n_permutations=args.n_permutations,
        alphas=args.alphas,
        alpha_images=args.alpha_images,
        shifts=args.shifts,
        seed=args.seed,
        label=label_of(args.model, args.model_label),
        no_accuracy=no_accuracy,
        attacks=args.attacks,
        other=other,
    )
    # The seed of a result is that of training: seeds of models are what intervals are over.
    common = {
        "model": label_of(args.model, args.model_label),
        "seed": trained.get("seed"),
        "step": trained.get("steps"),
    }
    records = [check_record({**common, **row}) for row in records]
    target = RunDir(args.output_dir or args.model)
    target.append_results(records)
    target.write_args({**vars(args), "dataset_name": dataset_name}, "analysis.json")
    if not target.args():
        target.write_args({"model": label_of(args.model, args.model_label), "model_config": model.config.to_dict()})
    return records


def _load_sample(args: AnalyzeArguments, dataset_name: str, model: Any, processor: Any) -> "tuple[Sample, str | None]":
    """Decode the split once, as the model's processor asks for; and why accuracy has no meaning, or None."""
    from hf_vitgeo.analysis.samples import Sample, label_map
    from hf_vitgeo.data.loading import load_arrays, name_in_results

    images, labels, class_names = load_arrays(
        dataset_name,
        str(args.split),
        picture_size(model.config, processor),
        image_column=args.image_column_name,
        label_column=args.label_column_name,
        skip_bad_images=args.skip_bad_images,
        max_samples=args.max_eval_samples,
        seed=args.seed,
    )
    outputs = label_map(class_names, model.config.id2label)
    no_accuracy = None
    if outputs is None:
        no_accuracy = f"{dataset_name} has classes that are none of the model's, such as {class_names[0]!r}"
    sample = Sample(
        images,
        labels if outputs is None else outputs[labels],
        name_in_results(dataset_name),
        str(args.split),
        tuple(processor.image_mean),
        tuple(processor.image_std),
        args.batch_size,
    )
    return sample, no_accuracy


def _load_other(args: AnalyzeArguments, model: Any, processor: Any) -> "Sample":
    """Decode the data set of a semantic shift and keep the classes that the model has."""
    from hf_vitgeo.analysis.samples import Sample, shared_classes
    from hf_vitgeo.data.loading import load_arrays, name_in_results

    name = str(args.shifted_dataset_name)
    size = picture_size(model.config, processor)
    images, labels, class_names = load_arrays(
        name, args.shifted_split, size, skip_bad_images=args.skip_bad_images, seed=args.seed
    )
    outputs = shared_classes(class_names, model.config.id2label)[labels]
    kept = outputs >= 0
    if not kept.any():
        raise ValueError(f"--shifted_dataset_name {name} shares no class with the model: {class_names[:3]} ...")
    return Sample(
        images[kept],
        outputs[kept],
        name_in_results(name),
        args.shifted_split,
        tuple(processor.image_mean),
        tuple(processor.image_std),
        args.batch_size,
    )

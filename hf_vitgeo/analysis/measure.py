"""Every measure of one model on one sample, as records: what `scripts/analyze.py` writes."""

from collections.abc import Iterable, Sequence
from typing import Any

from tqdm.auto import tqdm

from hf_vitgeo.analysis.attacks import attacked
from hf_vitgeo.analysis.attention_locality import head_records
from hf_vitgeo.analysis.recorder import record
from hf_vitgeo.analysis.robustness import robustness_records
from hf_vitgeo.analysis.samples import Sample
from hf_vitgeo.analysis.semantic_shift import semantic_records
from hf_vitgeo.analysis.spatial_structure import alpha_records, rpi_records, ssdt_under_rpi, structure_records
from hf_vitgeo.data.shifts import parse_attack, parse_shift


def measure(
    model: Any,
    sample: Sample,
    n_images: int,
    n_permutations: int,
    alphas: Sequence[float],
    alpha_images: int,
    shifts: Sequence[str],
    seed: int,
    label: str,
    no_accuracy: str | None = None,
    attacks: Sequence[str] = (),
    other: Sample | None = None,
) -> list[dict[str, Any]]:
    """Measure structure, heads, the alpha sweep and fragility.

    Args:
        model: a model of a supported family; accuracy and fragility need a classifier.
        sample: pictures with labels. Accuracy and fragility use all of them, but for those of the sweep.
        n_images: size of the seeded random sample for structure, heads and the accuracies of the sweep.
        n_permutations: P of RPI.
        alphas: factors for the sweep; only used where the model adds an encoding to its tokens.
        alpha_images: size of the subset on which SSDT is swept.
        shifts: names that `parse_shift` knows.
        seed: of sample, permutations and bootstrap.
        label: of the progress bar.
        no_accuracy: why accuracy and fragility have no meaning here, such as labels of other classes; None where
            they have.
        attacks: names that `data.shifts.parse_attack` knows; on the sample for structure, as they cost many passes.
        other: pictures of another data set with classes of the model, for `semantic_shift.semantic_records`.

    Returns:
        Records without `model`, `seed` and `step`.

    Raises:
        ValueError: for an unknown shift or a model that the recorder does not support.
    """
    operations = {name: parse_shift(name) for name in shifts}
    chosen = sample.subset(n_images, seed)
    swept = alphas if getattr(model.config, "position_encoding", None) in ("learned", "sinusoidal") else []
    classifier = hasattr(model, "classifier")
    passes = 1 + n_permutations * (1 + len(swept))
    with tqdm(total=passes, desc=f"analyze {label}", unit="pass") as bar:
        recorded = record(model, chosen.batches())
        bar.update()
        values, similarities = ssdt_under_rpi(model, chosen, n_permutations, seed, progress=bar.update)
        structure = [
            *structure_records(recorded),
            *rpi_records(values, similarities, recorded["grid_size"], seed),
            *head_records(recorded),
        ]
        few = chosen.subset(alpha_images, seed)
        sweep = alpha_records(model, few, swept, n_permutations, seed, bar.update)
    records = [*_on(structure, chosen), *_on(sweep, few)]
    if classifier and no_accuracy:
        records += _on(_without_accuracy(operations, no_accuracy), sample)
    elif classifier:
        shifted = {name: sample.shifted(operation) for name, operation in operations.items()}
        classes = model.config.num_labels
        records += _on(robustness_records(model, sample, shifted, classes, seed=seed), sample)
        if attacks:
            found = {name: attacked(model, chosen, parse_attack(name), seed) for name in attacks}
            rows = robustness_records(model, chosen, found, classes, seed=seed)
            # the clean accuracy stands there already
            records += _on([row for row in rows if row["shift"] is not None], chosen)
        if other is not None:
            records += semantic_records(model, sample, other, seed)
        # Paper A sweeps under JPEG; on the sample for structure, or eleven passes over a large split would rule the
        # cost.
        jpeg = {name: chosen.shifted(operation) for name, operation in operations.items() if name.startswith("jpeg")}
        for alpha in swept:
            records += _on(robustness_records(model, chosen, jpeg, classes, alpha, seed), chosen)
    return records


def _without_accuracy(shifts: Iterable[str], reason: str) -> list[dict[str, Any]]:
    """The records of robustness with a reason in place of each value."""
    rows: list[dict[str, Any]] = [{"metric": "accuracy", "shift": None}]
    for name in shifts:
        rows += [{"metric": metric, "shift": name} for metric in ("accuracy", "fragility")]
    return [{**row, "value": None, "reason": reason} for row in rows]


def _on(rows: list[dict[str, Any]], sample: Sample) -> list[dict[str, Any]]:
    """Say of each record on which pictures it was measured."""
    facts = {
        "dataset": sample.dataset,
        "split": sample.split,
        "n_images": len(sample.images),
        "sample_hash": sample.hash,
    }
    return [{**facts, **row} for row in rows]

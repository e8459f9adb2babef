"""Other pictures of the same classes (ImageNet-R, -A, sketches): accuracy and fragility among the shared classes."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hf_vitgeo.analysis.recorder import evaluating
from hf_vitgeo.analysis.robustness import wilson_interval
from hf_vitgeo.analysis.samples import Sample
from hf_vitgeo.metrics.fragility.pure import fragility

_RESAMPLES = 1000


def semantic_records(model: Any, clean: Sample, shifted: Sample, seed: int = 0) -> list[dict[str, Any]]:
    """Accuracy on both data sets, of the classes they share and with the other outputs left out, and fragility.

    As ImageNet-R is reported (Hendrycks et al. 2021): the model chooses among the classes that the shifted data has.

    Args:
        model: a classifier.
        clean: pictures of its own data, labels by output.
        shifted: pictures of the other data set, labels by output; only classes of the model.
        seed: of the bootstrap, which resamples both sets by themselves: they are not pairs.

    Returns:
        Records without the fields that name the model; `shift` is the name of the other data set.

    Raises:
        ValueError: when no clean picture has one of the classes.
    """
    classes = np.unique(shifted.labels)
    rows = np.isin(clean.labels, classes)
    if not rows.any():
        raise ValueError(f"no picture of {clean.dataset} has a class of --shifted_dataset_name {shifted.dataset}")
    clean = replace(clean, images=clean.images[rows], labels=clean.labels[rows])
    right, right_shifted = (_right_among(model, sample, classes) for sample in (clean, shifted))
    facts = {"dataset": clean.dataset, "split": clean.split}
    found = []
    for sample, correct, name in ((clean, right, None), (shifted, right_shifted, shifted.dataset)):
        low, high = wilson_interval(int(correct.sum()), len(correct))
        row = {
            "metric": "accuracy_shared_classes",
            "shift": name,
            "value": correct.mean(),
            "spread": {"kind": "interval95", "low": low, "high": high},
        }
        found.append({**facts, **row, "n_images": len(correct), "sample_hash": sample.hash})
    about = {"metric": "fragility", "shift": shifted.dataset, "n_images": len(right_shifted)}
    about = {**facts, **about, "sample_hash": shifted.hash}
    try:
        value = fragility(float(right.mean()), float(right_shifted.mean()))
    except ValueError as error:
        return [*found, {**about, "value": None, "reason": str(error)}]
    rng = np.random.default_rng(seed)
    # a share of n right pictures, resampled, is binomial
    above = rng.binomial(len(right_shifted), right_shifted.mean(), _RESAMPLES) / len(right_shifted)
    below = rng.binomial(len(right), right.mean(), _RESAMPLES) / len(right)
    ratios = 1 - above[below > 0] / below[below > 0]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return [*found, {**about, "value": value, "spread": {"kind": "interval95", "low": low, "high": high}}]


@torch.no_grad()
def _right_among(model: Any, sample: Sample, classes: np.ndarray) -> np.ndarray:
    """Whether each picture is classified rightly when only some outputs may be chosen: (n,) bool."""
    device = next(model.parameters()).device
    allowed = torch.from_numpy(classes)
    with evaluating(model):
        chosen = [model(batch.to(device)).logits.cpu()[:, allowed].argmax(dim=1) for batch in sample.batches()]
    return classes[torch.cat(chosen).numpy()] == sample.labels

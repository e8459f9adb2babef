"""How much accuracy does a shift cost? Accuracy, and fragility with its interval over the same pictures (paper A)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hf_vitgeo.analysis.recorder import evaluating
from hf_vitgeo.analysis.samples import Sample
from hf_vitgeo.metrics.fragility.pure import fragility, fragility_chance_corrected, fragility_interval

_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


@torch.no_grad()
def correct_predictions(model: Any, sample: Sample, position_scale: float | None = None) -> np.ndarray:
    """Whether each picture is classified rightly.

    Args:
        model: a classifier; it is evaluated and left in the mode it was in.
        sample: pictures with labels.
        position_scale: paper A's alpha for this pass; ViTGeo models only.

    Returns:
        (n,) bool.
    """
    device = next(model.parameters()).device
    arguments = {} if position_scale is None else {"position_scale": position_scale}
    with evaluating(model):
        predicted = [model(batch.to(device), **arguments).logits.argmax(dim=1).cpu() for batch in sample.batches()]
    return torch.cat(predicted).numpy() == sample.labels


def robustness_records(
    model: Any,
    clean: Sample,
    shifted: Mapping[str, Sample],
    num_classes: int,
    position_scale: float | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Accuracy on clean and shifted pictures, and fragility, both at the same alpha.

    Args:
        model: a classifier.
        clean: pictures with labels.
        shifted: the same pictures under each shift, by its name.
        num_classes: for the value that a guess would have; a model near chance looks robust.
        position_scale: alpha for all of it; None for the checkpoint's own.
        seed: of the bootstrap.

    Returns:
        Records without the fields that name model and data. Fragility comes with a paired bootstrap interval, and with
        the chance-corrected value beside it; either is null, with a reason, where it is not defined.
    """
    chance = 1 / num_classes
    right = correct_predictions(model, clean, position_scale)
    rows = [_accuracy(right, None)]
    for name, sample in shifted.items():
        right_shifted = correct_predictions(model, sample, position_scale)
        rows.append(_accuracy(right_shifted, name))
        rows.append(_fragility("fragility", name, right, right_shifted, None, seed))
        rows.append(_fragility("fragility_chance_corrected", name, right, right_shifted, chance, seed))
    return [{**row, "position_scale": position_scale} for row in rows]


def _accuracy(right: np.ndarray, shift: str | None) -> dict[str, Any]:
    low, high = wilson_interval(int(right.sum()), len(right))
    spread = {"kind": "interval95", "low": low, "high": high}
    return {"metric": "accuracy", "shift": shift, "value": right.mean(), "spread": spread}


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion, over pictures.

    Args:
        successes: right pictures.
        trials: all pictures, at least 1.

    Returns:
        (low, high) in [0, 1].
    """
    share, z2 = successes / trials, _Z**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z / (1 + z2 / trials) * np.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _fragility(
    metric: str, shift: str, right: np.ndarray, right_shifted: np.ndarray, chance: float | None, seed: int
) -> dict[str, Any]:
    clean, shifted = float(right.mean()), float(right_shifted.mean())
    row: dict[str, Any] = {"metric": metric, "shift": shift, "value": None}
    try:
        value = fragility(clean, shifted) if chance is None else fragility_chance_corrected(clean, shifted, chance)
        low, high = fragility_interval(right, right_shifted, seed=seed, chance=chance)
    except ValueError as error:
        return {**row, "reason": str(error)}
    return {**row, "value": value, "spread": {"kind": "interval95", "low": low, "high": high}}

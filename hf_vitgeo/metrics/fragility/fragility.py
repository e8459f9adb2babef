"""Fragility as an `evaluate` metric: `evaluate.load("<folder or Hub id>")`.

Self-contained: it imports nothing of the package but its sibling, which `evaluate` copies along. Code that does not
need `evaluate` (its import takes seconds) imports the functions from `pure`.
"""

from typing import Any

import datasets
import evaluate
import numpy as np

from .pure import fragility, fragility_chance_corrected, fragility_interval

__all__ = ["Fragility", "fragility", "fragility_chance_corrected", "fragility_interval"]

_DESCRIPTION = """\
Fragility is the share of its top-1 accuracy that a model loses when the images shift: 1 - A_shift / A_clean.
It comes with both accuracies and a paired bootstrap interval, because a model close to chance looks robust.
"""

_CITATION = """\
@article{mannes2026positional,
  title = {Positional Encodings Anchor Spatial Structure in Vision Transformers:
    A Geometric Perspective on Robustness},
  author = {Mannes, Mahmoud},
  journal = {arXiv preprint arXiv:2606.00124},
  year = {2026}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    correct_clean: for each image, 1 or True where the model is right on the clean image.
    correct_shift: the same for the shifted image, in the same order.
    chance: accuracy of a guess (1 / number of classes); adds the chance-corrected value and its interval.
    n_resamples, confidence, seed: of the paired bootstrap.

Returns:
    accuracy_clean, accuracy_shift: shares of right images.
    fragility, fragility_low, fragility_high: the value and its interval.
    fragility_chance_corrected, ..._low, ..._high: only with chance.

Examples:
    >>> metric = Fragility()
    >>> result = metric.compute(correct_clean=[1, 1, 1, 1, 0] * 20, correct_shift=[1, 1, 0, 0, 0] * 20)
    >>> result["accuracy_clean"], result["accuracy_shift"], result["fragility"]
    (0.8, 0.4, 0.5)
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class Fragility(evaluate.Metric):
    """The metric that `evaluate.load` returns."""

    def _info(self) -> evaluate.MetricInfo:
        # Integers, so that 0 and 1 are taken as well as False and True.
        flags = {"correct_clean": datasets.Value("int8"), "correct_shift": datasets.Value("int8")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(flags),
            reference_urls=["https://arxiv.org/abs/2606.00124"],
        )

    def _compute(
        self,
        correct_clean: Any,
        correct_shift: Any,
        chance: float | None = None,
        n_resamples: int = 1000,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> dict[str, float]:
        """Measure the answers to the same images, (n_images,) each."""
        clean, shift = float(np.mean(correct_clean)), float(np.mean(correct_shift))
        low, high = fragility_interval(correct_clean, correct_shift, n_resamples, confidence, seed)
        result = {"accuracy_clean": clean, "accuracy_shift": shift, "fragility": fragility(clean, shift)}
        result |= {"fragility_low": low, "fragility_high": high}
        if chance is not None:
            low, high = fragility_interval(correct_clean, correct_shift, n_resamples, confidence, seed, chance)
            result["fragility_chance_corrected"] = fragility_chance_corrected(clean, shift, chance)
            result |= {"fragility_chance_corrected_low": low, "fragility_chance_corrected_high": high}
        return result

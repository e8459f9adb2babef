"""Attention locality as an `evaluate` measurement: `evaluate.load("<folder or Hub id>")`.

Self-contained: it imports nothing of the package but its sibling, which `evaluate` copies along. Code that does not
need `evaluate` (its import takes seconds) imports the functions from `pure`.
"""

from typing import Any

import datasets
import evaluate
import numpy as np

from .pure import (
    attention_entropy,
    attention_rows,
    attention_support,
    mean_attention_distance,
    patch_mass,
)

__all__ = [
    "MeanAttentionDistance",
    "attention_entropy",
    "attention_rows",
    "attention_support",
    "mean_attention_distance",
    "patch_mass",
]

_DESCRIPTION = """\
Mean attention distance (MAD) is the attention-weighted distance on the patch grid between a query patch and its keys.
Beside it stand the normalised entropy of the same weights, the share of patches that get any weight, and the mass that
patches get beside [CLS] and registers.
"""

_CITATION = """\
@article{santiagotoledo2026inducing,
  title = {Inducing Spatial Locality in Vision Transformers through the Training Protocol},
  author = {Santiago Toledo, E. A. and Mart{\\'i}nez, A. F.},
  journal = {arXiv preprint arXiv:2605.16390},
  year = {2026}
}
@inproceedings{dosovitskiy2021image,
  title = {An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale},
  author = {Dosovitskiy, Alexey and others},
  booktitle = {ICLR},
  year = {2021}
}
@inproceedings{raghu2021vision,
  title = {Do Vision Transformers See Like Convolutional Neural Networks?},
  author = {Raghu, Maithra and others},
  booktitle = {NeurIPS},
  year = {2021}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    attentions: list of T x T attention maps of one head, one map an image; prefix tokens first, then the patches.
    grid_size: (rows, columns) of the patch grid.
    num_prefix_tokens: how many tokens ([CLS], registers) stand before the patches.

Returns:
    The means over maps of
    mean_attention_distance: as a share of the largest distance on the grid; rows renormalised over the patches.
    mean_attention_distance_patches: the same in patches.
    mean_attention_distance_unnormalized: rows not renormalised.
    mean_attention_distance_no_self: the query's own patch left out.
    attention_entropy: divided by log N.
    attention_support: share of the patch keys with any weight.
    patch_mass: weight on patch keys.
    NaN, with a warning, where a map has no query to measure or a weight is not finite.

Examples:
    >>> import numpy as np
    >>> uniform = np.full((1, 64, 64), 1 / 64)
    >>> result = MeanAttentionDistance().compute(attentions=uniform, grid_size=(8, 8))
    >>> round(result["mean_attention_distance"], 6), round(result["attention_entropy"], 6)
    (0.417848, 1.0)
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class MeanAttentionDistance(evaluate.Measurement):
    """The measurement that `evaluate.load` returns."""

    def _info(self) -> evaluate.MeasurementInfo:
        return evaluate.MeasurementInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"attentions": datasets.List(datasets.List(datasets.Value("float64")))}),
            reference_urls=["https://arxiv.org/abs/2605.16390", "https://arxiv.org/abs/2108.08810"],
        )

    def _compute(self, attentions: Any, grid_size: tuple[int, int], num_prefix_tokens: int = 0) -> dict[str, float]:
        """Measure the maps (B, T, T), which `evaluate` hands over as nested lists."""
        maps = np.asarray(attentions, dtype=np.float64)
        place: dict[str, Any] = {"grid_size": grid_size, "num_prefix_tokens": num_prefix_tokens}
        values = {  # (B,) each
            "mean_attention_distance": mean_attention_distance(maps, **place),
            "mean_attention_distance_patches": mean_attention_distance(maps, normalize=None, **place),
            "mean_attention_distance_unnormalized": mean_attention_distance(maps, renormalize=False, **place),
            "mean_attention_distance_no_self": mean_attention_distance(maps, exclude_self=True, **place),
            "attention_entropy": attention_entropy(maps, num_prefix_tokens),
            "attention_support": attention_support(maps, num_prefix_tokens),
            "patch_mass": patch_mass(maps, num_prefix_tokens),
        }
        return {name: float(value.mean()) for name, value in values.items()}

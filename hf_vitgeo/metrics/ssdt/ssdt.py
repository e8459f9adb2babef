"""SSDT as an `evaluate` measurement: `evaluate.load("<folder or Hub id>")`.

Self-contained: it imports nothing of the package but its siblings, which `evaluate` copies along. Code that does not
need `evaluate` (its import takes seconds) imports the functions from `pure`.
"""

from typing import Any

import datasets
import evaluate
import numpy as np

from .mantel import mantel_null
from .pure import average_ranks, grid_distance, ssdt, token_similarity

__all__ = ["SSDT", "average_ranks", "grid_distance", "mantel_null", "ssdt", "token_similarity"]

_DESCRIPTION = """\
SSDT is the Spearman correlation between the cosine similarity of patch tokens and their nearness on the image grid.
"Positional Encodings Anchor Spatial Structure in Vision Transformers" (Mannes 2026) prints the same measure as SSDC.
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
    similarity: list of N x N matrices, each the mean of `token_similarity` over images (one a layer or permutation).
    grid_size: (rows, columns) of the patch grid, N = rows * columns.
    distance: "manhattan" (the paper's) or "euclidean".

Returns:
    ssdt: mean over the matrices, in [-1, 1].
    ssdt_per_matrix: the value of each matrix; NaN, with a warning, where it holds a NaN or is constant.

Examples:
    >>> import numpy as np
    >>> distance = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))  # four patches in a row
    >>> SSDT().compute(similarity=[-distance, distance], grid_size=(1, 4))
    {'ssdt': 0.0, 'ssdt_per_matrix': [1.0, -1.0]}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class SSDT(evaluate.Measurement):
    """The measurement that `evaluate.load` returns."""

    def _info(self) -> evaluate.MeasurementInfo:
        return evaluate.MeasurementInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"similarity": datasets.List(datasets.List(datasets.Value("float64")))}),
            reference_urls=["https://arxiv.org/abs/2606.00124"],
        )

    def _compute(self, similarity: Any, grid_size: tuple[int, int], distance: str = "manhattan") -> dict[str, Any]:
        """Measure the matrices (B, N, N), which `evaluate` hands over as nested lists."""
        values = ssdt(np.asarray(similarity, dtype=np.float64), grid_size, distance)  # (B,)
        return {"ssdt": float(values.mean()), "ssdt_per_matrix": values.tolist()}

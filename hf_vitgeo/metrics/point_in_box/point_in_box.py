"""Point-in-box as an `evaluate` metric: `evaluate.load("<folder or Hub id>")`.

Self-contained: it imports nothing of the package but its sibling, which `evaluate` copies along. Code that does not
need `evaluate` (its import takes seconds) imports the functions from `pure`.
"""

from typing import Any

import datasets
import evaluate
import numpy as np

from .pure import hits, patches_of, point_in_box

__all__ = ["PointInBox", "hits", "patches_of", "point_in_box"]

_DESCRIPTION = """\
Point-in-box (PiB) is the share of images whose best-scored patch lies in the ground-truth box of the object: a test of
whether a [CLS] token is most like the patches of the thing in the picture or like some patch of the background.
"""

_CITATION = """\
@article{shi2026more,
  title = {Vision Transformers Need More Than Registers},
  author = {Shi, Cheng and Yu, Yizhou and Yang, Sibei},
  journal = {arXiv preprint arXiv:2602.22394},
  year = {2026}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    scores: for each image the scores of its patches, rows by columns, one grid for all images.
    boxes: for each image its boxes [x0, y0, x1, y1] in pixels of the stored image, end exclusive.
    image_sizes: for each image its height and width.
    resize, crop, edges, single_object: as in the function `point_in_box`.

Returns:
    point_in_box: a fraction, NaN where no image is left.
    n_images: images that counted.
    n_left_out: images without a box, with several of them, or (edges="exact") with none in the crop.

Examples:
    >>> metric = PointInBox()
    >>> scores = [[[0.1, 0.9], [0.2, 0.3]], [[0.1, 0.2], [0.9, 0.3]]]
    >>> boxes = [[[150, 10, 200, 60]], [[150, 10, 200, 60]]]
    >>> metric.compute(scores=scores, boxes=boxes, image_sizes=[[224, 224]] * 2, resize=None)
    {'point_in_box': 0.5, 'n_images': 2, 'n_left_out': 0}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class PointInBox(evaluate.Metric):
    """The metric that `evaluate.load` returns."""

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(
                {
                    "scores": datasets.List(datasets.List(number)),
                    "boxes": datasets.List(datasets.List(number)),
                    "image_sizes": datasets.List(datasets.Value("int64")),
                }
            ),
            reference_urls=["https://arxiv.org/abs/2602.22394", "https://arxiv.org/abs/2605.23868"],
        )

    def _compute(
        self,
        scores: Any,
        boxes: Any,
        image_sizes: Any,
        resize: int | None = 256,
        crop: int = 224,
        edges: str = "published",
        single_object: bool = True,
    ) -> dict[str, float]:
        """Measure the images that were added."""
        found = hits(scores, boxes, image_sizes, resize, crop, edges, single_object)
        counted = int(np.isfinite(found).sum())
        share = point_in_box(scores, boxes, image_sizes, resize, crop, edges, single_object)
        return {"point_in_box": share, "n_images": counted, "n_left_out": len(found) - counted}

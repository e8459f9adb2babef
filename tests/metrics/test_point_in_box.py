"""Point-in-box against the published rule written out, and the edges where it is easily wrong."""

import math

import numpy as np
import pytest

from hf_vitgeo.metrics.point_in_box.pure import hits, patches_of, point_in_box


def naive(scores, box, size, patch=16, resize=256, crop=224):
    """PROTOCOLS C.4, one line after the other."""
    height, width = size
    scale = resize / min(width, height)
    new_width, new_height = int(resize * width / min(width, height)), int(resize * height / min(width, height))
    x0, x1 = (box[0] * scale - (new_width - crop) // 2, box[2] * scale - (new_width - crop) // 2)
    y0, y1 = (box[1] * scale - (new_height - crop) // 2, box[3] * scale - (new_height - crop) // 2)
    x0, x1, y0, y1 = (min(max(value, 0), crop) for value in (x0, x1, y0, y1))
    side = crop // patch
    touched = {
        min(row, side - 1) * side + min(column, side - 1)
        for row in range(int(y0 // patch), int(y1 // patch) + 1)
        for column in range(int(x0 // patch), int(x1 // patch) + 1)
    }
    return int(scores.reshape(-1).argmax()) in touched


def test_the_published_rule():
    rng = np.random.default_rng(0)
    n = 300
    scores, sizes = rng.random((n, 14, 14)), rng.integers(100, 700, (n, 2))
    boxes = []
    for height, width in sizes:
        x, y = np.sort(rng.choice(width, 2, replace=False)), np.sort(rng.choice(height, 2, replace=False))
        boxes.append([[x[0], y[0], x[1], y[1]]])
    expected = [naive(score, box[0], size) for score, box, size in zip(scores, boxes, sizes, strict=True)]
    np.testing.assert_array_equal(hits(scores, boxes, sizes), expected)
    assert point_in_box(scores, boxes, sizes) == np.mean(expected) and 0 < np.mean(expected) < 1


def best(row, column, side=14):
    scores = np.zeros((1, side, side))
    scores[0, row, column] = 1
    return scores


def test_a_patch_that_the_box_only_borders_counts_as_published_and_not_exactly():
    # squeezed 224x224: the box covers columns and rows 2 and 3, and ends where patch 4 begins
    box, size = [[[32, 32, 64, 64]]], [[224, 224]]
    assert patches_of(box[0][0], (224, 224), (14, 14), None) == (2, 2, 4, 4)
    assert patches_of(box[0][0], (224, 224), (14, 14), None, edges="exact") == (2, 2, 3, 3)
    for row, published, exact in ((1, 0, 0), (2, 1, 1), (3, 1, 1), (4, 1, 0), (5, 0, 0)):
        assert hits(best(row, 3), box, size, None)[0] == published
        assert hits(best(row, 3), box, size, None, edges="exact")[0] == exact


def test_a_box_outside_the_crop_is_the_nearest_patch_or_left_out():
    # 256 high, 512 wide: the crop begins at x = 144, the box ends at 20
    box, size = [[[0, 100, 20, 150]]], [[256, 512]]
    assert hits(best(6, 0), box, size)[0] == 1
    assert math.isnan(hits(best(6, 0), box, size, edges="exact")[0])
    assert math.isnan(point_in_box(best(6, 0), box, size, edges="exact"))
    right = [[[500, 100, 512, 150]]]
    assert hits(best(6, 13), right, size)[0] == 1 and hits(best(6, 12), right, size)[0] == 0


def test_several_objects_are_left_out_or_any_counts():
    boxes, sizes = [[[0, 0, 50, 50], [150, 150, 224, 224]], [], [[0, 0, 50, 50]]], [[224, 224]] * 3
    scores = np.concatenate([best(13, 13)] * 3)
    np.testing.assert_array_equal(hits(scores, boxes, sizes, None), [np.nan, np.nan, 0])
    np.testing.assert_array_equal(hits(scores, boxes, sizes, None, single_object=False), [1, np.nan, 0])
    assert point_in_box(scores, boxes, sizes, None, single_object=False) == 0.5


def test_of_equal_scores_the_first_counts_and_any_grid_goes():
    box = [[[0, 0, 3, 3]]]
    assert hits(np.zeros((1, 2, 3)), box, [[8, 12]], None)[0] == 1
    assert hits(best(1, 1, 2), box, [[8, 12]], None)[0] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": np.full((1, 2, 2), np.nan)}, "scores of image 0 are not finite"),
        ({"scores": np.zeros((1, 4))}, "do not fit"),
        ({"boxes": [[[0, 0, 4, 4]]] * 2}, "2 lists of boxes"),
        ({"image_sizes": [8, 8]}, "image_sizes"),
        ({"boxes": [[[4, 0, 4, 4]]]}, "a box of image 0 has no area"),
        ({"edges": "all"}, "edges is 'all'; allowed are published, exact"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message):
    given = {"scores": np.zeros((1, 2, 2)), "boxes": [[[0, 0, 4, 4]]], "image_sizes": [[8, 8]], **changes}
    with pytest.raises(ValueError, match=message):
        hits(**given)

"""Splits with masks and depth maps: columns found or named, rows decoded, and errors that name the row."""

import datasets
import numpy as np
import pytest
from PIL import Image

from hf_vitgeo.data.dense_sets import open_dense


@pytest.fixture
def folder(tmp_path):
    def make(masks, image_column="image", mask_column="annotation"):
        rows = {
            image_column: [Image.new("RGB", (mask.shape[1], mask.shape[0]), (9, 9, 9)) for mask in masks],
            mask_column: [Image.fromarray(mask) for mask in masks],
            "coloured": [Image.new("RGB", (mask.shape[1], mask.shape[0]), (9, 9, 9)) for mask in masks],
            "depth_map": [Image.fromarray(np.full(mask.shape, 1500, np.uint16)) for mask in masks],
        }
        features = {name: datasets.Image() for name in rows}
        table = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
        table.to_parquet(tmp_path / "data" / "train.parquet")
        return str(tmp_path / "data")

    return make


MASKS = [np.full((4, 6), value, np.uint8) for value in (0, 1, 2, 255)]


def test_masks_and_depths_are_found_by_their_usual_names(folder):
    path = folder(MASKS)
    split = open_dense(path, "train", "segmentation")
    assert len(split) == 4 and split.image(0).size == (6, 4) and split.image(0).mode == "RGB"
    assert [int(split.target(number)[0, 0]) for number in range(4)] == [0, 1, 2, 255]
    from_one = open_dense(path, "train", "segmentation", zero_is_ignored=True)
    assert [int(from_one.target(number)[0, 0]) for number in range(4)] == [255, 0, 1, 255]
    depth = open_dense(path, "train", "depth")
    assert depth.target(2)[0, 0] == np.float32(1.5)
    assert open_dense(path, "train", "depth", depth_encoding="kitti").target(0)[0, 0] == np.float32(1500 / 256)
    few = open_dense(path, "train", "segmentation", max_samples=2, seed=1)
    assert len(few) == 2 and all(int(few.target(n)[0, 0]) == int(split.target(few.rows[n])[0, 0]) for n in (0, 1))


def test_the_scenes_have_both():
    mask = open_dense("scenes", "test", "segmentation", max_samples=3)
    depth = open_dense("scenes", "test", "depth", max_samples=3)
    assert len(mask) == len(depth) == 3
    assert mask.target(0).shape == depth.target(0).shape == (64, 64)
    assert set(np.unique(mask.target(0))) <= set(range(10)) and 0 <= depth.target(0).max() < 100


def test_mistakes_are_named(folder):
    path = folder([*MASKS[:2]], "photo", "annotation")
    with pytest.raises(
        ValueError, match="no image column found; name one of 'photo', 'annotation', 'coloured', 'depth_map'"
    ):
        open_dense(path, "train", "segmentation")
    with pytest.raises(ValueError, match="there is no mask column 'classes'; the columns are"):
        open_dense(path, "train", "segmentation", "photo", "classes")
    with pytest.raises(ValueError, match="task is 'boxes'; allowed are segmentation, depth"):
        open_dense(path, "train", "boxes", "photo")
    with pytest.raises(ValueError, match="'photo' is both the image and the mask column"):
        open_dense(path, "train", "segmentation", "photo", "photo")
    coloured = open_dense(path, "train", "segmentation", "photo", "coloured")
    with pytest.raises(ValueError, match="row 1 of .*mode RGB has colours, not classes"):
        coloured.target(1)
    wrong = open_dense(path, "train", "depth", "photo", "annotation")
    with pytest.raises(ValueError, match="row 0 of .*mode L has 8 bits"):
        wrong.target(0)

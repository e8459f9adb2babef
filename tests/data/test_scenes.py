import io

import numpy as np
import pytest
from PIL import Image

from hf_vitgeo.data import scenes


def test_a_scene_depends_on_seed_split_and_index_alone():
    a = scenes.render("train", 32, range(0, 40))
    b = scenes.render("train", 32, range(20, 30))
    for name in a:
        np.testing.assert_array_equal(a[name][20:30], b[name])
    for split, seed in (("test", 0), ("train", 1)):
        assert not np.array_equal(scenes.render(split, 32, range(0, 40), seed)["image"], a["image"])


def test_shapes_and_ranges():
    found = scenes.render("train", 48, range(0, 200))
    assert found["image"].shape == (200, 48, 48, 3) and found["image"].dtype == np.uint8
    assert found["mask"].shape == (200, 48, 48) and set(np.unique(found["mask"])) == set(range(len(scenes.MASK_NAMES)))
    assert found["depth"].dtype == np.uint16 and found["depth"].max() <= 20_000
    assert np.all((found["depth"] == 0) == (found["mask"] == 0)), "only the sky has no depth"
    assert set(found["label"]) == set(range(len(scenes.CLASS_NAMES)))


def test_the_box_holds_the_main_object_in_its_place():
    found = scenes.render("train", 64, range(0, 300))
    surface, place = np.divmod(found["label"], len(scenes.PLACES))
    for i, (x0, y0, x1, y1) in enumerate(found["bbox"]):
        inside = found["mask"][i] == 3 + surface[i]
        rows, columns = np.nonzero(inside)
        assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (x0, y0, x1, y1)
        if x0 > 0 and x1 < 64 and y0 > 0 and y1 < 64:  # not cut off by the border
            middle = ((y0 + y1) / 2 * 3 / 64, (x0 + x1) / 2 * 3 / 64)
            assert (int(middle[0]), int(middle[1])) == divmod(place[i], 3)


def test_classes_are_balanced_and_a_stripe_runs_its_way():
    found = scenes.render("train", 32, range(0, 2000))
    counts = np.bincount(found["label"], minlength=len(scenes.CLASS_NAMES))
    assert counts.min() > 0.6 * 2000 / len(scenes.CLASS_NAMES)
    grey = found["image"].mean(-1)
    surface = found["label"] // len(scenes.PLACES)
    across, along = [], []
    for picture, (x0, y0, x1, y1), kind in zip(grey, found["bbox"], surface, strict=True):
        patch = picture[y0 + 3 : y1 - 3, x0 + 3 : x1 - 3]
        if min(patch.shape) > 3:
            gradients = [np.abs(np.diff(patch, axis=axis)).mean() for axis in (0, 1)]
            across.append(gradients[kind])
            along.append(gradients[1 - kind])
    assert np.mean(across) > 3 * np.mean(along)


def test_a_scene_is_the_same_at_every_size():
    small, large = (scenes.render("validation", size, range(0, 12)) for size in (32, 128))
    np.testing.assert_array_equal(small["label"], large["label"])
    reduced = large["image"].reshape(12, 32, 4, 32, 4, 3).mean(axis=(2, 4))
    assert np.abs(reduced - small["image"]).mean() < 12
    assert np.abs(large["bbox"] / 4 - small["bbox"]).max() <= 1.5


def test_load_is_a_data_set_with_features(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    table = scenes.load("test", size=32, n=20)
    assert table.features["label"].names == list(scenes.CLASS_NAMES) and len(table) == 20
    raw = scenes.render("test", 32, range(0, 20))
    row = table[3]
    np.testing.assert_array_equal(np.asarray(row["image"]), raw["image"][3])
    np.testing.assert_array_equal(np.asarray(row["mask"]), raw["mask"][3])
    np.testing.assert_array_equal(np.asarray(row["depth"]), raw["depth"][3])
    assert row["bbox"] == raw["bbox"][3].tolist() and row["label"] == raw["label"][3]
    assert scenes.load("test", size=32, n=20).cache_files == table.cache_files
    assert scenes.load("test", size=32, n=20, seed=1).cache_files != table.cache_files


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"split": "val"}, "'val'.*'validation'"),
        ({"size": 31}, "size is 31.*32 to 224"),
        ({"size": 225}, "size is 225"),
        ({"n": 0}, "n is 0"),
    ],
)
def test_impossible_requests_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        scenes.load(**arguments)


def test_depth_is_written_in_sixteen_bits():
    depth = scenes.render("test", 32, range(0, 1))["depth"][0]
    read = np.asarray(Image.open(io.BytesIO(scenes._png(depth))))
    np.testing.assert_array_equal(read, depth)


def test_stated_means_are_those_of_the_pictures():
    from hf_vitgeo.data.transforms import NORMALIZATION

    images = scenes.render("train", 32, range(0, 1000))["image"] / 255
    np.testing.assert_allclose(images.mean(axis=(0, 1, 2)), NORMALIZATION["scenes"][0], atol=0.02)
    np.testing.assert_allclose(images.std(axis=(0, 1, 2)), NORMALIZATION["scenes"][1], atol=0.02)

"""load_image_dataset: columns, splits and labels found or named, broken pictures named or left out."""

import pickle

import datasets
import numpy as np
import pytest
from PIL import Image, ImageFile

from hf_vitgeo.data.datasets import class_names, load_image_dataset, to_uint8


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Keep what datasets caches inside the test's folder, and its progress bars out of the output."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def picture(value, size=(8, 8)):
    return Image.new("RGB", size, (value, 0, 0))


def redness(row):
    assert row["image"].mode == "RGB"
    return row["image"].getpixel((0, 0))[0]


def image_folder(root, labels=("cat", "cat", "cat", "dog", "dog", "dog"), split=None):
    """Write picture i with redness 10 i into the folder of its class."""
    for i, label in enumerate(labels):
        path = root / (split or ".") / label / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(10 * i).save(path)
    return root


def broken_folder(root):
    """Case C23: six rows, of which row 1 is cut off in the middle and row 4 is empty."""
    image_folder(root)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8))
    noise.save(root / "cat" / "1.png")
    content = (root / "cat" / "1.png").read_bytes()
    (root / "cat" / "1.png").write_bytes(content[: len(content) // 2])
    (root / "dog" / "4.png").write_bytes(b"")
    return root


def table(columns, **features):
    """A data set in memory: pictures as PIL images, everything else as given."""
    made = datasets.Dataset.from_dict(columns)
    for name, feature in features.items():
        made = made.cast_column(name, feature)
    return made


def pictures(n=4):
    return [picture(10 * i) for i in range(n)]


def saved(tmp_path, columns, split="train", **features):
    """Write a DatasetDict of one split by save_to_disk."""
    made = datasets.DatasetDict({split: table(columns, **features)})
    made.save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


def parquet_folder(tmp_path, made, split="train"):
    folder = tmp_path / "parquet" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    made.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return tmp_path / "parquet"


def test_image_folder(tmp_path):
    root = image_folder(tmp_path / "pets", split="train")
    image_folder(root, labels=("cat", "dog"), split="test")
    train = load_image_dataset(root, "train")
    assert len(train) == 6 and class_names(train) == ["cat", "dog"]
    assert [(redness(row), row["label"]) for row in train] == [(0, 0), (10, 0), (20, 0), (30, 1), (40, 1), (50, 1)]
    assert train[0].keys() == {"image", "label"}
    assert len(load_image_dataset(str(root), "test")) == 2


def test_parquet_with_other_column_names(tmp_path):
    made = table({"img": pictures(), "fine_label": [2, 0, 1, 1], "extra": list("abcd")})
    made = made.cast_column("fine_label", datasets.ClassLabel(names=["x", "y", "z"]))
    loaded = load_image_dataset(parquet_folder(tmp_path, made), "train")
    assert [(redness(row), row["label"]) for row in loaded] == [(0, 2), (10, 0), (20, 1), (30, 1)]
    assert class_names(loaded) == ["x", "y", "z"]


def test_folder_of_save_to_disk(tmp_path):
    root = saved(tmp_path, {"image": pictures(), "label": [0, 1, 0, 1]})
    assert [row["label"] for row in load_image_dataset(root, "train")] == [0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"saved: no split 'test'; there are 'train'"):
        load_image_dataset(root, "test")


def test_single_dataset_of_save_to_disk(tmp_path):
    made = table({"image": pictures(), "label": [0, 1, 0, 1]})
    made.save_to_disk(tmp_path / "nameless")
    assert len(load_image_dataset(tmp_path / "nameless", "any")) == 4
    parts = parquet_folder(tmp_path, made)
    datasets.load_dataset(str(parts), split="train").save_to_disk(tmp_path / "named")
    assert len(load_image_dataset(tmp_path / "named", "train")) == 4
    with pytest.raises(ValueError, match="no split 'test'; there are 'train'"):
        load_image_dataset(tmp_path / "named", "test")


def test_indexing_slicing_and_iterating_decode_alike(tmp_path):
    loaded = load_image_dataset(image_folder(tmp_path / "pets"), "train")
    one, several, batch = loaded[2], loaded[1:3], next(loaded.iter(2))
    assert redness(one) == 20 and one["label"] == 0 and type(one["label"]) is int
    assert [image.getpixel((0, 0))[0] for image in several["image"]] == [10, 20] and several["label"] == [0, 0]
    assert len(batch["image"]) == 2 and batch.keys() == several.keys() == {"image", "label"}
    assert loaded["image"][5].getpixel((0, 0))[0] == 50 and list(loaded["label"]) == [0, 0, 0, 1, 1, 1]
    assert redness(pickle.loads(pickle.dumps(loaded))[3]) == 30
    assert [row["label"] for row in loaded.select_columns("label")] == [0, 0, 0, 1, 1, 1]
    assert loaded.select_columns("image")[1]["image"].size == (8, 8)


def test_pictures_go_through_load_rgb(tmp_path):
    """Case C21 through a data set: 16-bit grey stays a ramp; transparency becomes white."""
    root = tmp_path / "kinds"
    (root / "a").mkdir(parents=True)
    ramp = (np.arange(256) * 257).astype(np.uint16)[None].repeat(2, 0)
    Image.fromarray(ramp).save(root / "a" / "0.png")
    Image.new("LA", (2, 2), (0, 0)).save(root / "a" / "1.png")
    (root / "b").mkdir()
    picture(9).save(root / "b" / "2.png")
    loaded = load_image_dataset(root, "train")
    assert np.asarray(loaded[0]["image"])[0, :, 0].tolist() == list(range(256))
    assert np.asarray(loaded[1]["image"]).min() == 255


def test_a_broken_picture_names_row_and_file(tmp_path):
    """Case C23 without the flag."""
    loaded = load_image_dataset(broken_folder(tmp_path / "pets"), "train")
    match_1, match_4 = r"row 1 of .*pets.*cat/1\.png: cannot be decoded", r"row 4 of .*dog/4\.png: the file is empty"
    with pytest.raises(ValueError, match=match_1):
        list(loaded)
    for broken, match in ((1, match_1), (4, match_4)):
        with pytest.raises(ValueError, match=match):
            loaded[broken]
    with pytest.raises(ValueError, match=match_4):
        loaded[3:6]
    with pytest.raises(ValueError, match=match_1):
        to_uint8(loaded, 8)
    assert redness(loaded[5]) == 50
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_row_numbers_survive_selection_and_shuffling(tmp_path):
    loaded = load_image_dataset(broken_folder(tmp_path / "pets"), "train")
    with pytest.raises(ValueError, match="row 4 of"):
        loaded.select([5, 4])[1]
    with pytest.raises(ValueError, match="row 4 of"):
        to_uint8(loaded.select([5, 4]), 8)
    with pytest.raises(ValueError, match="row [14] of"):
        list(loaded.shuffle(seed=0))


def test_bad_pictures_are_left_out_and_reported(tmp_path):
    """Case C23 with the flag: the labels of the others stay where they are."""
    root = broken_folder(tmp_path / "pets")
    with pytest.warns(UserWarning, match=r"left out 2 of 6 rows(?s:.*)row 1 of (?s:.*)cat/1\.png(?s:.*)row 4 of"):
        loaded = load_image_dataset(root, "train", skip_bad_images=True)
    assert [(redness(row), row["label"]) for row in loaded] == [(0, 0), (20, 0), (30, 1), (50, 1)]
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    (root / "dog" / "5.png").write_bytes(b"")
    with pytest.raises(ValueError, match="row 5 of"):
        loaded[3]


def test_good_pictures_are_not_reported(tmp_path):
    loaded = load_image_dataset(image_folder(tmp_path / "pets"), "train", skip_bad_images=True)
    assert len(loaded) == 6


def test_only_ten_bad_pictures_are_named(tmp_path):
    root = image_folder(tmp_path / "pets", labels=["a"] * 8 + ["b"] * 8)
    for i in range(1, 8):
        (root / "a" / f"{i}.png").write_bytes(b"")
        (root / "b" / f"{i + 8}.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="left out 14 of 16 rows") as caught:
        load_image_dataset(root, "train", skip_bad_images=True)
    message = str(caught[0].message)
    assert message.count("row ") == 10 and message.endswith("...") and caught[0].filename == __file__


def test_a_data_set_of_bad_pictures_only(tmp_path):
    root = saved(tmp_path, {"image": [b"", b"text"], "label": [0, 1]})
    with pytest.raises(ValueError, match=r"none of 2 pictures can be read\. The first: row 0 of"):
        load_image_dataset(root, "train", skip_bad_images=True)


def test_missing_cells_and_files_are_named(tmp_path):
    lost = str(tmp_path / "lost.png")
    root = saved(tmp_path, {"image": [None, lost], "label": [0, 1]}, image=datasets.Value("string"))
    loaded = load_image_dataset(root, "train")
    with pytest.raises(ValueError, match="row 0 of .*neither bytes nor a path"):
        loaded[0]
    with pytest.raises(ValueError, match=r"row 1 of .*lost\.png"):
        loaded[1]


@pytest.mark.parametrize("kind", ["bytes", "paths"])
def test_columns_of_bytes_and_paths(kind, tmp_path):
    paths = sorted(image_folder(tmp_path / "pets").rglob("*.png"))
    cells = [path.read_bytes() if kind == "bytes" else str(path) for path in paths]
    loaded = load_image_dataset(saved(tmp_path, {"img": cells, "target": [1] * 6}), "train")
    assert [redness(row) for row in loaded] == [0, 10, 20, 30, 40, 50]


def test_columns_are_chosen_by_name(tmp_path):
    columns = {"left": pictures(), "right": pictures()[::-1], "colour": [0, 1, 2, 3], "shape": [3, 3, 3, 0]}
    root = saved(tmp_path, columns)
    loaded = load_image_dataset(root, "train", image_column="right", label_column="shape")
    assert [(redness(row), row["label"]) for row in loaded] == [(30, 3), (20, 3), (10, 3), (0, 0)]


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        (("a", "b", "label"), {}, "'a', 'b' may each be the image column: use --image_column_name"),
        (("image", "b", "label"), {"image_column": "c"}, "no image column 'c'; the columns are 'image', 'b', 'label'"),
        (("a", "b", "n"), {"image_column": "a"}, "no label column found; name one of 'a', 'b', 'n' by --label_column"),
        (("a", "b", "n"), {"image_column": "a", "label_column": "m"}, "no label column 'm'; the columns are 'a', 'b'"),
        (("a", "b", "n"), {"image_column": "n"}, "column 'n' holds no pictures but .*int64"),
    ],
)
def test_columns_that_are_missing_or_ambiguous(names, arguments, message, tmp_path):
    root = saved(tmp_path, dict(zip(names, (pictures(), pictures(), [0, 1, 0, 1]), strict=True)))
    with pytest.raises(ValueError, match=f"saved, split 'train'.*{message}"):
        load_image_dataset(root, "train", **arguments)


def test_no_picture_column_at_all(tmp_path):
    root = saved(tmp_path, {"x": [1, 2], "image": [3, 4], "label": [0, 1]})
    with pytest.raises(ValueError, match="no image column found; name one of 'x', 'image', 'label' by --image_column"):
        load_image_dataset(root, "train")


def test_two_label_columns(tmp_path):
    classes = datasets.ClassLabel(num_classes=2)
    columns = {"image": pictures(), "fine_label": [0, 1, 0, 1], "coarse_label": [1, 1, 0, 0]}
    root = saved(tmp_path, columns, fine_label=classes, coarse_label=classes)
    match = "'fine_label', 'coarse_label' may each be the label column: use --label_column_name"
    with pytest.raises(ValueError, match=match):
        load_image_dataset(root, "train")
    assert load_image_dataset(root, "train", label_column="coarse_label")[0]["label"] == 1


def test_text_labels_are_numbered_in_sorted_order(tmp_path):
    root = saved(tmp_path, {"image": pictures(), "label": ["pear", "apple", "pear", "Fig"]})
    loaded = load_image_dataset(root, "train")
    assert class_names(loaded) == ["Fig", "apple", "pear"]
    assert [row["label"] for row in loaded] == [2, 1, 2, 0]


def test_bare_numbers_keep_their_count_in_a_subset(tmp_path):
    root = saved(tmp_path, {"image": pictures(), "label": [0, 0, 0, 7]})
    loaded = load_image_dataset(root, "train")
    assert class_names(loaded) == class_names(loaded.select([0])) == [str(n) for n in range(8)]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, -1, -1], r"row 2 has the label -1, outside 0\.\.1 \(2 such rows"),
        ([0, None, 1, 1], "row 1 has no label"),
        ([0.5, 1.0, 0.0, 1.0], "row 0 has the label 0.5, which is neither integer nor text"),
        ([[0], [1], [0], [1]], r"row 0 has the label \[0\], which is neither"),
        (["a", "b", "a", None], "row 3 has no label"),
        ([0, 1, 10**15, 1], r"row 2 has the label 1000000000000000, outside 0\.\.999999 \(1 such"),
        ([-1, -1, -1, -1], r"row 0 has the label -1.*\(4 such rows"),
    ],
)
def test_bad_labels_are_named(labels, message, tmp_path):
    root = saved(tmp_path, {"image": pictures(), "label": labels})
    with pytest.raises(ValueError, match=f"split 'train': {message}"):
        load_image_dataset(root, "train")


def test_class_labels_out_of_range_are_named(tmp_path):
    made = table({"image": pictures(), "label": [0, 1, 3, 1]}).cast_column("image", datasets.Image())
    # Parquet stores the numbers; the names beside them may be of another version of the data.
    made.info.features["label"] = made.features["label"] = datasets.ClassLabel(names=["a", "b"])
    with pytest.raises(ValueError, match=r"row 2 has the label 3, outside 0\.\.1"):
        load_image_dataset(parquet_folder(tmp_path, made), "train")


def test_unknown_and_empty_splits(tmp_path, monkeypatch):
    root = image_folder(tmp_path / "pets", split="train")
    with pytest.raises(ValueError, match=r"pets: .*\"valid\".*\['train'\]"):
        load_image_dataset(root, "valid")
    with pytest.raises(ValueError, match="pets: .*corresponds to no data"):
        load_image_dataset(root, "train[:0]")
    with pytest.raises(ValueError, match="saved holds an empty split"):
        load_image_dataset(saved(tmp_path, {"image": [], "label": []}), "train")
    # datasets 5.2 refuses every split without rows in its own words; another version may hand it over.
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split, streaming: table({"image": [], "label": []}))
    with pytest.raises(ValueError, match="pets, split 'train' is empty"):
        load_image_dataset(root, "train")


def test_local_paths_that_are_no_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for missing in ("./nowhere", str(tmp_path / "nowhere"), tmp_path / "nowhere", "~/no_such_folder_of_pictures"):
        with pytest.raises(FileNotFoundError, match=f"{str(missing).replace('.', '[.]')}' does not exist"):
            load_image_dataset(missing, "train")
    (tmp_path / "hollow").mkdir()
    with pytest.raises(FileNotFoundError, match="hollow"):
        load_image_dataset("hollow", "train")
    (tmp_path / "one.parquet").touch()
    with pytest.raises(NotADirectoryError, match="one.parquet.*give the folder"):
        load_image_dataset("one.parquet", "train")


def test_a_folder_named_like_a_reader_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image_folder(tmp_path / "imagefolder")
    assert len(load_image_dataset("imagefolder", "train")) == 6


def test_a_hub_id_out_of_reach_says_what_to_do():
    with pytest.raises(ConnectionError, match="'someone/pets' is no folder .* Give a local folder, or") as caught:
        load_image_dataset("someone/pets", "train")
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_hub_ids_go_to_datasets_as_they_are(monkeypatch):
    asked = []

    def load_dataset(name, split, streaming):
        asked.append((name, split))
        return table({"image": pictures(), "label": [0, 1, 0, 1]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert len(load_image_dataset("someone/pets", "train[:4]")) == 4
    assert asked == [("someone/pets", "train[:4]")]


def test_a_subset_is_random_seeded_and_in_order(tmp_path):
    root = image_folder(tmp_path / "pets", labels=["a"] * 10 + ["b"] * 10)
    subsets = [[redness(row) for row in load_image_dataset(root, "train", max_samples=8, seed=s)] for s in (0, 0, 1)]
    everything = [redness(row) for row in load_image_dataset(root, "train")]
    assert subsets[0] == subsets[1] != subsets[2]
    for subset in subsets:
        assert len(subset) == 8 and subset != everything[:8]
        assert subset == [value for value in everything if value in subset]
    assert [redness(row) for row in load_image_dataset(root, "train", max_samples=21)] == everything


def test_a_subset_keeps_the_numbers_of_its_rows(tmp_path):
    root = broken_folder(tmp_path / "pets")
    loaded = load_image_dataset(root, "train", max_samples=5, seed=3)
    with pytest.raises(ValueError, match="row [14] of"):
        list(loaded)
    with pytest.warns(UserWarning, match="left out [12] of 5 rows"):
        kept = load_image_dataset(root, "train", max_samples=5, seed=3, skip_bad_images=True)
    assert {redness(row) for row in kept} <= {0, 20, 30, 50}


@pytest.mark.parametrize("max_samples", [0, -1])
def test_a_subset_of_nothing_is_refused(max_samples, tmp_path):
    with pytest.raises(ValueError, match=f"max_samples must be at least 1, not {max_samples}"):
        load_image_dataset(tmp_path, "train", max_samples=max_samples)


def test_to_uint8_equals_reading_row_by_row(tmp_path):
    loaded = load_image_dataset(image_folder(tmp_path / "pets"), "train").shuffle(seed=1)
    images, labels = to_uint8(loaded, 8)
    assert images.shape == (6, 8, 8, 3) and images.dtype == np.uint8 and labels.dtype == np.int64
    for row, image, label in zip(loaded, images, labels, strict=True):
        np.testing.assert_array_equal(np.asarray(row["image"]), image)
        assert row["label"] == label


def test_to_uint8_resizes_by_pil_and_reads_any_data_set():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 20, 3), dtype=np.uint8))
    images, labels = to_uint8(table({"image": [noise] * 1001, "label": range(1001)}), 16)
    assert labels.tolist() == list(range(1001))
    np.testing.assert_array_equal(images[-1], np.asarray(noise.resize((16, 16), Image.Resampling.BILINEAR)))


def test_pictures_without_labels_are_of_one_class_where_none_are_needed(tmp_path):
    import datasets

    pictures = [Image.new("RGB", (5, 4), (9 * number, 0, 0)) for number in range(3)]
    table = datasets.Dataset.from_dict({"photo": pictures}, features=datasets.Features({"photo": datasets.Image()}))
    table.to_parquet(tmp_path / "pack" / "train.parquet")
    with pytest.raises(ValueError, match="no label column found"):
        load_image_dataset(tmp_path / "pack", "train")
    found = load_image_dataset(tmp_path / "pack", "train", needs_labels=False)
    assert class_names(found) == ["unlabelled"] and [found[n]["label"] for n in range(3)] == [0, 0, 0]
    assert found[2]["image"].getpixel((0, 0)) == (18, 0, 0)
    with pytest.raises(ValueError, match="there is no label column 'kind'"):
        load_image_dataset(tmp_path / "pack", "train", label_column="kind", needs_labels=False)

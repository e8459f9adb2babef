"""The papers' data sets by id, on look-alikes with the same columns: the Hub itself is out of reach of the tests."""

import datasets
import numpy as np
import pytest
from PIL import Image

from hf_vitgeo.commands.training_inputs import load
from hf_vitgeo.data.catalog import CATALOG, entry
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.building import PictureFormat

#: Columns that the Hub's data sets have beside the two that count.
OTHERS = {"uoft-cs/cifar100": {"coarse_label": datasets.ClassLabel(num_classes=20)}}


def look_alike(name, num_classes=None):
    known = CATALOG[name]
    classes = datasets.ClassLabel(num_classes=num_classes or known.num_classes)
    features = {known.image_column: datasets.Image(), known.label_column: classes, **OTHERS.get(name, {})}
    picture = Image.fromarray(np.zeros((known.image_size, known.image_size, 3), np.uint8))
    columns = {column: [0, 1] for column in features} | {known.image_column: [picture, picture]}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


@pytest.fixture
def hub(monkeypatch):
    def serve(table):
        asked = []

        def load_dataset(name, split, streaming):
            asked.append((name, split))
            return table

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return asked

    return serve


@pytest.mark.parametrize("name", CATALOG)
def test_columns_splits_and_classes_of_each(name, hub):
    asked = hub(look_alike(name))
    args = SupervisedArguments(dataset_name=name)
    known = entry(name.upper())
    assert known is CATALOG[name]
    split = load(args, str(args.eval_split), PictureFormat((32, 32), (0.5,) * 3, (0.5,) * 3), None)
    assert len(split) == 2 and len(split.class_names) == known.num_classes
    assert asked == [(name, known.eval_split)] and split.source[1][1] == 1


def test_another_number_of_classes_is_an_error(hub):
    hub(look_alike("uoft-cs/cifar10", num_classes=11))
    args = SupervisedArguments(dataset_name="uoft-cs/cifar10")
    with pytest.raises(ValueError, match="uoft-cs/cifar10 should have 10 classes, but 'test' has 11"):
        load(args, "test", PictureFormat((32, 32), (0.5,) * 3, (0.5,) * 3), None)

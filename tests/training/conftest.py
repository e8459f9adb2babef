"""Small data that is learned at once, and arguments of a tiny run."""

import numpy as np
import pytest

from hf_vitgeo.data.loading import ImageSplit
from hf_vitgeo.data.sampling import ArrayImages
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.building import build_model, picture_format
from hf_vitgeo.training.supervised import train


@pytest.fixture
def colours():
    """Two classes that a model tells apart at once: dark and bright pictures."""

    def make(n, seed=0):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, n)
        images = (rng.integers(0, 100, (n, 32, 32, 3)) + 150 * labels[:, None, None, None]).astype(np.uint8)
        return ImageSplit(ArrayImages(images, labels.astype(np.int64)), ("dark", "bright"))

    return make


@pytest.fixture
def arguments(tmp_path):
    def make(**changes):
        settings = {
            "output_dir": str(tmp_path / "run"),
            "preset": "tiny",
            "num_train_epochs": 3,
            "num_warmup_epochs": 0.5,
            "per_device_train_batch_size": 16,
            "dataset_name": "colours",
        }
        return SupervisedArguments(**{**settings, **changes})

    return make


@pytest.fixture
def fit():
    """Train as the command does, on splits that are at hand."""

    def run(args, train_split, eval_split, on_measure=None):
        model = build_model(args, train_split.class_names)
        return train(args, model, picture_format(args), train_split, eval_split, on_measure)

    return run

"""What every test needs: no network, few threads, and tiny models."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import pytest
import torch

from hf_vitgeo.models import ViTGeoConfig, ViTGeoForImageClassification, ViTGeoModel

ENCODINGS = ("none", "learned", "sinusoidal", "rope")
FUNCTIONS = ("softmax", "entmax15")


def pytest_addoption(parser):
    parser.addoption("--slow-turn", default="0/1", help="i/n: run every n-th slow test, from the i-th; CI takes turns")


def pytest_collection_modifyitems(config, items):
    turn, parts = map(int, config.getoption("--slow-turn").split("/"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    skipped = {item for place, item in enumerate(slow) if place % parts != turn}
    if skipped:
        config.hook.pytest_deselected(items=list(skipped))
        items[:] = [item for item in items if item not in skipped]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture
def tiny_config():
    """A configuration of the tiny preset with changes; the table is large enough to be seen."""

    def make(**changes):
        return ViTGeoConfig.from_preset("tiny", **{"position_init_std": 1.0, "initializer_range": 0.1, **changes})

    return make


@pytest.fixture
def tiny_model(tiny_config):
    def make(**changes):
        return ViTGeoModel(tiny_config(**changes)).eval()

    return make


@pytest.fixture
def tiny_classifier(tiny_config):
    def make(**changes):
        return ViTGeoForImageClassification(tiny_config(**{"num_labels": 5, **changes})).eval()

    return make


@pytest.fixture
def pictures():
    return torch.randn(3, 3, 32, 32)

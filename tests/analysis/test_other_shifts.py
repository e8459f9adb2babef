"""Adversarial and semantic shifts: what they may change, and what they must not."""

import numpy as np
import pytest
import torch

from hf_vitgeo.analysis.attacks import attacked
from hf_vitgeo.analysis.robustness import correct_predictions
from hf_vitgeo.analysis.samples import Sample, shared_classes
from hf_vitgeo.analysis.semantic_shift import semantic_records
from hf_vitgeo.data.shifts import Attack, parse_attack
from hf_vitgeo.models import ViTGeoConfig, ViTGeoForImageClassification


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ViTGeoForImageClassification(ViTGeoConfig.from_preset("tiny", num_labels=4, initializer_range=0.2)).eval()


@pytest.fixture
def sample(model):
    images = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    empty = Sample(images, np.zeros(24, int), "made", "test", (0.5,) * 3, (0.5,) * 3, 8)
    with torch.no_grad():
        labels = np.concatenate([model(batch).logits.argmax(1).numpy() for batch in empty.batches()])
    return Sample(images, labels, "made", "test", (0.5,) * 3, (0.5,) * 3, 8)


@pytest.mark.parametrize(("name", "attack"), [("fgsm_e4", Attack("fgsm", 4)), ("pgd_e2_n10", Attack("pgd", 2, 10))])
def test_names_of_attacks(name, attack):
    assert parse_attack(name) == attack


@pytest.mark.parametrize("name", ["fgsm", "fgsm_e0", "pgd_e2", "pgd_e2_n0", "cw_e1", "fgsm_e256"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=f"'{name}'; allowed"):
        parse_attack(name)


@pytest.mark.parametrize("name", ["fgsm_e8", "pgd_e8_n3"])
def test_an_attack_stays_within_eps_and_misleads(model, sample, name):
    before = {key: value.clone() for key, value in model.state_dict().items()}

    found = attacked(model, sample, parse_attack(name), seed=1)

    assert np.abs(found.images.astype(int) - sample.images).max() == 8
    assert correct_predictions(model, sample).all() and correct_predictions(model, found).mean() < 0.7
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert np.array_equal(found.images, attacked(model, sample, parse_attack(name), seed=1).images)


def test_fgsm_is_one_signed_step(model, sample):
    found = attacked(model, sample, Attack("fgsm", 4))

    pixels = torch.from_numpy(sample.images.transpose(0, 3, 1, 2) / np.float32(255)).requires_grad_()
    loss = torch.nn.functional.cross_entropy(model((pixels - 0.5) / 0.5).logits, torch.from_numpy(sample.labels))
    sign = torch.autograd.grad(loss, pixels)[0].sign()
    naive = (pixels + sign * 4 / 255).clamp(0, 1).mul(255).round().byte().permute(0, 2, 3, 1).numpy()
    assert (naive == found.images).mean() > 0.999  # a gradient of exactly 0 has no sign to agree on


def test_semantic_shift_chooses_among_shared_classes(model, sample):
    kept = np.isin(sample.labels, np.unique(sample.labels)[:2])
    other = Sample(sample.images[kept], sample.labels[kept], "sketches", "test", (0.5,) * 3, (0.5,) * 3, 8)

    clean, shifted, fragility = semantic_records(model, sample, other)

    # the same pictures again: nothing is lost, and the clean set is cut down to these classes
    assert clean["n_images"] == shifted["n_images"] == kept.sum()
    assert clean["value"] == shifted["value"] == 1 and fragility["value"] == 0
    assert (clean["shift"], shifted["shift"], fragility["shift"]) == (None, "sketches", "sketches")


def test_semantic_shift_without_a_common_class_is_refused(model, sample):
    one = sample.subset(4, 0)
    nobody = Sample(one.images, np.full(4, 9), "sketches", "test", one.mean, one.std)
    with pytest.raises(ValueError, match="sketches"):
        semantic_records(model, sample, nobody)


def test_shared_classes_by_name_or_first_synonym():
    names = {0: "tench, Tinca tinca", 1: "goldfish", 2: "great_white shark"}
    assert shared_classes(["Goldfish", "great white shark", "tench", "axolotl"], names).tolist() == [1, 2, 0, -1]

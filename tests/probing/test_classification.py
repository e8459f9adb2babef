"""Weighted k-NN and the linear probe against naive loops and closed forms; features against transformers' own."""

import math

import numpy as np
import pytest
import torch
from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel, ViTConfig, ViTModel

from hf_vitgeo.probing import classification
from hf_vitgeo.probing.classification import knn_records, linear_probe, nearest, weighted_knn
from hf_vitgeo.probing.features import fingerprint, image_features


def naive_knn(train, labels, test, num_classes, k, temperature):
    scores = np.zeros((len(test), num_classes))
    for row, query in enumerate(test):
        cosines = [float(np.dot(query, other) / np.linalg.norm(query) / np.linalg.norm(other)) for other in train]
        for index in sorted(range(len(train)), key=lambda each: -cosines[each])[:k]:
            scores[row, labels[index]] += math.exp(cosines[index] / temperature)
    return scores


@pytest.fixture
def blobs():
    def make(n, seed):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 3, n)
        centres = np.array([[3, 0, 0, 1], [0, 3, 0, 1], [0, 0, 3, 1]])
        return (centres[labels] + rng.normal(size=(n, 4))).astype(np.float32), labels

    return make


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.07), (5, 0.07), (40, 0.07), (7, 1.0)])
@pytest.mark.parametrize("chunk", [2**24, 90])
def test_knn_is_the_naive_loop(blobs, monkeypatch, k, temperature, chunk):
    monkeypatch.setattr(classification, "_CHUNK", chunk)
    (train, labels), (test, _) = blobs(40, 0), blobs(13, 1)
    scores = weighted_knn(train, labels, test, 3, k, temperature)
    np.testing.assert_allclose(scores, naive_knn(train, labels, test, 3, k, temperature), rtol=2e-4)


def test_a_far_majority_does_not_outvote_a_near_neighbour():
    """With temperature .07, cosine 1 weighs e^14.3 and cosine .8 e^11.4: one beats ten of them."""
    train = np.array([[1.0, 0.0]] + [[0.8, 0.6]] * 10, np.float32)
    scores = weighted_knn(train, [0] + [1] * 10, np.array([[2.0, 0.0]]), 2, k=11)
    assert scores.argmax() == 0
    assert weighted_knn(train, [0] + [1] * 10, np.array([[2.0, 0.0]]), 2, k=11, temperature=1.0).argmax() == 1
    assert weighted_knn(train, [0] + [1] * 10, np.zeros((0, 2), np.float32), 2, k=11).shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 41}, "k is 41; allowed is a whole number from 1 to the 40 training pictures"),
        ({"k": 0}, "k is 0"),
        ({"temperature": 0.0}, "temperature is 0.0; allowed is a number above 0"),
        ({"num_classes": 2}, "labels are from 0 to 2; there are 2 classes"),
        ({"test": np.full((2, 4), np.nan, np.float32)}, "not finite"),
        ({"test": np.ones((2, 5), np.float32)}, r"shapes \(40, 4\) and \(2, 5\) do not fit"),
    ],
)
def test_knn_refuses_what_makes_no_sense(blobs, changes, message):
    (train, labels), (test, _) = blobs(40, 0), blobs(5, 1)
    given = {"train": train, "labels": labels, "test": test, "num_classes": 3, "k": 5, "temperature": 0.07, **changes}
    with pytest.raises(ValueError, match=message):
        weighted_knn(**given)


def test_one_search_gives_the_records_of_every_k(blobs):
    (train, labels), (test, test_labels) = blobs(60, 0), blobs(30, 1)
    rows = knn_records(train, labels, test, test_labels, 3, [1, 10, 25])
    for row, k in zip(rows, (1, 10, 25), strict=True):
        right = weighted_knn(train, labels, test, 3, k).argmax(dim=1).numpy() == test_labels
        assert row["value"] == right.mean() and row["probe"] == f"k={k}, temperature=0.07"
        assert row["spread"]["low"] < row["value"] < row["spread"]["high"] or row["value"] == 1
    cosines, neighbours = nearest(train, train, 1)
    torch.testing.assert_close(cosines, torch.ones(60, 1))
    assert (neighbours[:, 0] == torch.arange(60)).all()


def test_the_linear_probe_learns_what_is_linear_and_nothing_else(blobs):
    (train, labels), (test, test_labels) = blobs(400, 0), blobs(200, 1)
    found = linear_probe(train, labels, test, test_labels, 3, rates=(1e-5, 0.5), epochs=30, batch_size=64)
    # the classes overlap: Bayes' rule for three unit Gaussians 4.24 apart is right in about 97 of 100
    assert found[0].rate == 0.5 and found[0].right.mean() > 0.9
    assert found[0].held_out_accuracy >= found[1].held_out_accuracy
    again = linear_probe(train, labels, test, test_labels, 3, rates=(0.5,), epochs=30, batch_size=64)
    assert again[0].right.shape == (200,)
    noise = np.random.default_rng(2).normal(size=(400, 4)).astype(np.float32)
    by_chance = linear_probe(noise, labels, noise[:200], test_labels, 3, rates=(0.1,), epochs=10)
    assert by_chance[0].right.mean() < 0.5


def test_one_rate_is_not_disturbed_by_the_others(blobs):
    (train, labels), (test, test_labels) = blobs(100, 0), blobs(50, 1)
    settings = {"epochs": 5, "batch_size": 32, "seed": 3}
    alone = linear_probe(train, labels, test, test_labels, 3, rates=(0.01,), **settings)[0]
    beside = linear_probe(train, labels, test, test_labels, 3, rates=(0.01, 10.0), **settings)
    beside = next(each for each in beside if each.rate == 0.01)
    assert alone.held_out_accuracy == beside.held_out_accuracy and (alone.right == beside.right).all()


@pytest.mark.parametrize("changes", [{"rates": ()}, {"epochs": 0}, {"batch_size": 0}, {"held_out": 1.0}])
def test_the_linear_probe_refuses_what_makes_no_sense(blobs, changes):
    (train, labels), (test, test_labels) = blobs(40, 0), blobs(5, 1)
    with pytest.raises(ValueError, match="a linear probe needs two pictures"):
        linear_probe(train, labels, test, test_labels, 3, **changes)


SHAPE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.mark.parametrize("family", ["vit", "dinov2_with_registers", "vitgeo", "specialized"])
def test_features_are_cls_of_the_last_blocks_after_the_final_norm(tiny_model, tmp_path, family):
    if family == "vit":
        model, prefix = ViTModel(ViTConfig(image_size=32, patch_size=8, **SHAPE)).eval(), 1
    elif family == "dinov2_with_registers":
        config = Dinov2WithRegistersConfig(image_size=32, patch_size=8, num_register_tokens=4, **SHAPE)
        model, prefix = Dinov2WithRegistersModel(config).eval(), 5
    else:
        extra = {"token_specialization": "norm_qkv"} if family == "specialized" else {}
        model, prefix = tiny_model(num_register_tokens=2, num_hidden_layers=3, **extra), 3
    pictures = torch.randn(7, 3, 32, 32)
    with torch.no_grad():
        hidden = model(pictures, output_hidden_states=True).hidden_states
        blocks = [model.layernorm(tokens) for tokens in hidden[-2:]]
        if family.startswith("dinov2"):
            torch.testing.assert_close(blocks[-1], model(pictures).last_hidden_state)
    expected = torch.cat([blocks[0][:, 0], blocks[1][:, 0], blocks[1][:, prefix:].mean(1)], dim=1)
    found = image_features(model, pictures.split(3), 7, tmp_path / "f.npy", num_blocks=2, average_pool=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert isinstance(found, np.memmap) and [path.name for path in tmp_path.iterdir()] == ["f.npy"]
    np.testing.assert_allclose(image_features(model, [pictures], 7), blocks[1][:, 0], atol=1e-5)


def test_a_model_that_pools_its_patches_is_probed_by_their_mean(tiny_model, pictures):
    model = tiny_model(pooling="mean", num_register_tokens=2)
    found = image_features(model, [pictures], 3)
    with torch.no_grad():
        np.testing.assert_allclose(found, model(pictures).pooler_output, atol=1e-6)


def test_features_refuse_what_they_cannot_give(tiny_model, pictures, tmp_path):
    model = tiny_model()
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    with pytest.raises(ValueError, match="num_blocks is 3; the model has 2 blocks"):
        image_features(model, [pictures], 3, num_blocks=3)
    with pytest.raises(ValueError, match="more than the 2 pictures"):
        image_features(model, [pictures], 2)
    with pytest.raises(ValueError, match="there are 3 pictures; 4 were announced"):
        image_features(model, [pictures], 4, tmp_path / "f.npy")
    with pytest.raises(ValueError, match="features of pictures 3 to 5 are not finite"):
        image_features(model, [pictures, pictures * math.nan], 6)
    assert not list(tmp_path.iterdir())
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks


def test_the_fingerprint_knows_weights_and_facts(tiny_model):
    model = tiny_model()
    first = fingerprint(model, "cifar10", "train")
    assert first == fingerprint(model, "cifar10", "train") != fingerprint(model, "cifar10", "test")
    model.layernorm.weight.data[0] += 1e-3
    assert fingerprint(model, "cifar10", "train") != first
    assert len(fingerprint(model.bfloat16(), "x")) == 12

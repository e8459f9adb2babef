import numpy as np
import pytest
import torch

from hf_vitgeo.analysis.measure import measure
from hf_vitgeo.analysis.robustness import robustness_records, wilson_interval
from hf_vitgeo.analysis.samples import Sample, label_map, sample_of
from hf_vitgeo.analysis.spatial_structure import alpha_records, permutations, rpi_records, ssdt_under_rpi
from hf_vitgeo.runs import check_record, record_key

pytestmark = pytest.mark.filterwarnings("ignore:the clean accuracy:UserWarning")


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 32, 32, 3)).astype(np.uint8)
    return Sample(images, rng.integers(0, 5, 40), "noise", "test", (0.5,) * 3, (0.5,) * 3, batch_size=16)


def test_a_sample_is_random_seeded_and_named_by_its_pictures(sample):
    few = sample.subset(10, seed=1)
    assert len(few.images) == 10 and few.hash == sample.subset(10, seed=1).hash != sample.subset(10, seed=2).hash
    assert not np.array_equal(few.images, sample.images[:10])
    assert sample.subset(100, seed=1) is sample
    whole = torch.cat(list(sample.batches()))
    assert whole.shape == (40, 3, 32, 32)
    torch.testing.assert_close(whole[3], torch.from_numpy(sample.images[3]).permute(2, 0, 1) / 127.5 - 1)


def test_a_shift_acts_on_every_picture_before_normalisation(sample):
    from PIL import ImageOps

    inverted = sample.shifted(ImageOps.invert)
    np.testing.assert_array_equal(inverted.images, 255 - sample.images)
    assert inverted.hash != sample.hash and inverted.labels is sample.labels


def test_permutations_are_seeded_and_a_prefix_of_more():
    four, two = permutations(64, 4, seed=3), permutations(64, 2, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(two, four[:2], strict=True))
    assert not torch.equal(four[0], permutations(64, 1, seed=4)[0])
    assert all(sorted(p.tolist()) == list(range(64)) for p in four)


def test_rpi_of_a_model_without_encoding_is_the_null(tiny_model, sample):
    """Content alone: the null of relabelled tokens is what shuffled patches give, up to chance."""
    model = tiny_model(position_encoding="none", initializer_range=0.3)
    smooth = np.repeat(np.repeat(sample.images[:, ::8, ::8], 8, 1), 8, 2)
    pictures = Sample(smooth, sample.labels, "smooth", "test", (0.5,) * 3, (0.5,) * 3)
    values, similarities = ssdt_under_rpi(model, pictures, n_permutations=16)
    rows = rpi_records(values, similarities, (8, 8))
    for layer in range(3):
        found, null = (r for r in rows if r["layer"] == layer)
        assert found["value"] == pytest.approx(values[:, layer].mean())
        assert found["spread"]["standard_error"] == pytest.approx(values[:, layer].std(ddof=1) / 4)
        assert null["spread"]["low"] * 1.7 < found["value"] < null["spread"]["high"] * 1.7
        assert abs(found["value"]) < max(0.05, 3 * found["spread"]["standard_error"])
    sinusoidal = tiny_model(position_encoding="sinusoidal")
    values, _ = ssdt_under_rpi(sinusoidal, pictures, n_permutations=4)
    assert values[:, 0].min() > 0.15, "neighbours have similar sinusoids before any training"


def test_alpha_zero_takes_the_anchor_away(tiny_model, sample):
    model = tiny_model(position_encoding="sinusoidal", cls_init_std=0.02)
    rows = alpha_records(model, sample, alphas=(0.0, 1.0), n_permutations=6)
    layer0 = {r["position_scale"]: r["value"] for r in rows if r["metric"] == "ssdt" and r["layer"] == 0}
    layer1 = {r["position_scale"]: r["value"] for r in rows if r["metric"] == "ssdt" and r["layer"] == 1}
    delta = {r["position_scale"]: r["value"] for r in rows if r["metric"] == "delta_ssdt"}
    assert layer0[1.0] > 0.15 > abs(layer0[0.0])
    for alpha in (0.0, 1.0):
        assert delta[alpha] == pytest.approx(layer1[alpha] - layer0[alpha])
    with pytest.raises(ValueError, match="position_scale is 0.0"):
        alpha_records(tiny_model(position_encoding="rope"), sample, alphas=(0.0,), n_permutations=1)


def test_accuracy_and_fragility_of_a_known_classifier(tiny_classifier, sample):
    model = tiny_classifier()
    with torch.no_grad():
        predicted = torch.cat([model(b).logits.argmax(1) for b in sample.batches()]).numpy()
    known = Sample(sample.images, predicted.copy(), "noise", "test", (0.5,) * 3, (0.5,) * 3)
    known.labels[:10] = (known.labels[:10] + 1) % 5
    rows = robustness_records(model, known, {"same": known}, num_classes=5)
    found = {(r["metric"], r["shift"]): r for r in rows}
    assert found["accuracy", None]["value"] == 0.75
    assert found["fragility", "same"]["value"] == 0 and found["fragility", "same"]["spread"]["low"] == 0
    wrong = Sample(sample.images, (predicted + 1) % 5, "noise", "test", (0.5,) * 3, (0.5,) * 3)
    rows = robustness_records(model, wrong, {"same": wrong}, num_classes=5)
    fragile = next(r for r in rows if r["metric"] == "fragility")
    assert fragile["value"] is None and "0" in fragile["reason"]


def test_wilson():
    assert wilson_interval(0, 10)[0] == 0 and wilson_interval(10, 10)[1] == pytest.approx(1)
    low, high = wilson_interval(50, 100)
    assert (low, high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))


def test_measure_writes_every_record_once_and_in_the_schema(tiny_classifier, sample):
    model = tiny_classifier(position_encoding="learned")
    rows = measure(
        model,
        sample,
        n_images=20,
        n_permutations=3,
        alphas=(0, 1),
        alpha_images=8,
        shifts=("jpeg_q5", "blur_s2.5_k5"),
        seed=0,
        label="x",
    )
    checked = [check_record(row) for row in rows]
    assert len({record_key(row) for row in checked}) == len(rows)
    found = {row["metric"] for row in rows}
    assert {
        "ssdt",
        "ssdt_per_image",
        "delta_ssdt",
        "accuracy",
        "fragility",
        "patch_mass",
        "attention_support",
    } <= found
    assert {row["n_images"] for row in rows if row["metric"] == "ssdt"} == {20, 8}
    assert {row["n_images"] for row in rows if row["metric"] == "accuracy" and row.get("position_scale") is None} == {
        40
    }
    assert all(row["sample_hash"] and row["dataset"] == "noise" for row in rows)
    with pytest.raises(ValueError, match="jpg5"):
        measure(model, sample, 20, 1, (), 8, ("jpg5",), 0, "x")


def test_labels_are_matched_by_name():
    model = {0: "cat", 1: "dog", 2: "great_white shark"}
    assert label_map(["dog", "cat"], model).tolist() == [1, 0]
    assert label_map(["Great white shark"], model).tolist() == [2]
    assert label_map(["dog", "horse"], model) is None
    assert label_map(["x", "y"], {0: "LABEL_0", 1: "LABEL_1"}).tolist() == [0, 1]
    assert label_map(["x", "y", "z"], {0: "LABEL_0", 1: "LABEL_1"}) is None


def test_without_a_reason_to_trust_labels_accuracy_is_null(sample, tiny_classifier):
    settings = {"n_images": 8, "n_permutations": 2, "alphas": [], "alpha_images": 4, "seed": 0, "label": "x"}
    rows = measure(tiny_classifier(), sample, shifts=["jpeg_q5"], no_accuracy="other classes", **settings)
    for metric in ("accuracy", "fragility"):
        found = [check_record(row) for row in rows if row["metric"] == metric]
        assert found and all(row["value"] is None and row["reason"] == "other classes" for row in found)
    assert any(row["metric"] == "ssdt" and row["value"] is not None for row in rows)


def test_a_sample_of_a_source_is_seeded_and_resized():
    from PIL import Image

    source = [(Image.new("RGB", (9, 7), (number, 0, 0)), number % 3) for number in range(30)]
    found = sample_of(source, 5, 1, "reds", "test", (8, 16), (0.5,) * 3, (0.5,) * 3, 2)
    assert found.images.shape == (5, 8, 16, 3)
    reds = found.images[:, 0, 0, 0]
    assert (reds % 3 == found.labels).all() and sorted(reds) == reds.tolist() != list(range(5))
    everything = sample_of(source, 100, 1, "reds", "test", (8, 8), (0.5,) * 3, (0.5,) * 3, 2)
    assert everything.images[:, 0, 0, 0].tolist() == list(range(30))


def test_the_size_of_pictures_is_what_the_processor_s_last_step_gives():
    from types import SimpleNamespace

    from hf_vitgeo.commands.model_inputs import picture_size

    config = SimpleNamespace(image_size=224)
    oblong = SimpleNamespace(size={"height": 32, "width": 48})
    cropped = SimpleNamespace(size={"shortest_edge": 256}, do_center_crop=True, crop_size={"height": 98, "width": 98})
    shorter = SimpleNamespace(size={"shortest_edge": 256}, do_center_crop=False, crop_size=None)
    assert picture_size(config, oblong) == (32, 48)
    assert picture_size(config, cropped) == (98, 98)
    assert picture_size(config, shorter) == (224, 224)
    with pytest.raises(ValueError, match="neither the image processor nor the configuration"):
        picture_size(SimpleNamespace(), shorter)

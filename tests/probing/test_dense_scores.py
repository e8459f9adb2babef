"""mIoU and depth errors against loops over pixels, and the ways in which they are usually got wrong."""

import math

import numpy as np
import pytest
import torch

from hf_vitgeo.probing.dense import (
    ConfusionMatrix,
    LinearSegmentation,
    depth_from_bins,
    depth_metrics,
    mean_iou,
    sig_loss,
)

NAN, INF = float("nan"), float("inf")


def naive_iou(predictions, masks, num_classes, ignore):
    found = []
    for k in range(num_classes):
        both = either = 0
        for prediction, mask in zip(predictions, masks, strict=True):
            for said, true in zip(prediction.ravel(), mask.ravel(), strict=True):
                if true != ignore:
                    both += said == k and true == k
                    either += said == k or true == k
        found.append(both / either if either else NAN)
    return found


def test_iou_is_the_loop_over_pixels():
    rng = np.random.default_rng(0)
    masks = [rng.choice([0, 1, 2, 3, 255], (7, 9)) for _ in range(4)]
    predictions = [rng.integers(0, 4, (7, 9)) for _ in range(4)]
    found = mean_iou(predictions, masks, num_classes=6)
    expected = naive_iou(predictions, masks, 6, 255)
    np.testing.assert_allclose(found["iou_per_class"], expected, atol=1e-12)
    assert math.isnan(expected[5]) and found["miou"] == pytest.approx(np.nanmean(expected), abs=1e-12)
    whole = ConfusionMatrix(6)
    whole.add(np.stack(predictions), np.stack(masks))  # one batch, the same
    assert whole.scores()["miou"] == found["miou"]
    assert found["n_pixels"] == sum(int((mask != 255).sum()) for mask in masks)


def test_false_positives_on_the_background_count():
    """Case C33: a prediction that floods the picture has a recall of 1 and an IoU of .4."""
    mask = np.array([[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]])
    flood = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]])
    found = mean_iou([flood], [mask], num_classes=2, ignore_index=255)
    np.testing.assert_allclose(found["iou_per_class"], [0.5, 0.4], atol=1e-12)
    assert found["miou"] == pytest.approx(0.45, abs=1e-12)


def test_truth_scores_one_and_nothing_scores_nan():
    mask = np.array([[0, 3, 255]])
    found = mean_iou([np.array([[0, 3, 1]])], [mask], 5)
    assert found["miou"] == 1 and found["pixel_accuracy"] == 1
    assert math.isnan(mean_iou([mask], [np.full((1, 3), 255)], 5)["miou"])


@pytest.mark.parametrize(
    ("prediction", "mask", "message"),
    [
        ([[0, 1]], [[0]], r"prediction \(1, 2\) and mask \(1, 1\) differ"),
        ([[0]], [[7]], "the mask has classes from 7 to 7; allowed are 0 to 4"),
        ([[5]], [[0]], "the prediction has classes from 5 to 5"),
        ([[-1]], [[0]], "the prediction has classes from -1"),
    ],
)
def test_impossible_classes_are_refused(prediction, mask, message):
    with pytest.raises(ValueError, match=message):
        mean_iou([np.array(prediction)], [np.array(mask)], 5)


def test_missing_depth_counts_in_neither_sum_nor_number():
    """Case A12: zeros, NaN, inf and what is beyond the range."""
    truths = [np.array([[1.0, 2.0, 0.0], [4.0, NAN, 13.0]]), np.array([[0.0, 0.0, 5.0], [0.0, INF, 0.0]])]
    given = [np.array([[1.5, 1.0, 9.0], [4.0, 3.0, 9.0]]), np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 1.0]])]
    found = depth_metrics([*given, np.ones((2, 3))], [*truths, np.zeros((2, 3))], 1e-3, 10.0)
    assert found["rmse"] == pytest.approx(1.8227486121839513, abs=1e-9)
    assert found["abs_rel"] == pytest.approx(0.4666666666666667, abs=1e-9)
    assert found["delta1"] == pytest.approx(0.16666666666666666, abs=1e-9)
    assert (found["n_images"], found["n_without_depth"]) == (2, 1)
    assert found["rmse_pooled"] == pytest.approx(math.sqrt((1.25 + 9) / 4), abs=1e-9)


def test_pictures_weigh_alike_in_any_order():
    """Case C37: 100 pixels off by .1, and 4 off by 1."""
    truths = [np.full((10, 10), 2.0), np.zeros((10, 10))]
    truths[1][0, :4] = 2.0
    given = [truths[0] + 0.1, np.full((10, 10), 3.0)]
    for order in ((0, 1), (1, 0)):
        found = depth_metrics([given[i] for i in order], [truths[i] for i in order])
        assert found["rmse"] == pytest.approx(0.55, abs=1e-9)
        assert found["abs_rel"] == pytest.approx(0.275, abs=1e-9)
        assert found["rmse_pooled"] == pytest.approx(0.219265, abs=1e-6)


def test_depth_errors_are_the_loop_over_pixels():
    rng = np.random.default_rng(0)
    truth, given = rng.uniform(0.5, 9, (5, 6)), rng.uniform(0.5, 9, (5, 6))
    pairs = list(zip(given.ravel().tolist(), truth.ravel().tolist(), strict=True))
    found = depth_metrics([given], [truth])
    assert found["rmse"] == pytest.approx(math.sqrt(sum((p - t) ** 2 for p, t in pairs) / 30), abs=1e-12)
    logs = sum((math.log(p) - math.log(t)) ** 2 for p, t in pairs) / 30
    assert found["log_rmse"] == pytest.approx(math.sqrt(logs), abs=1e-12)
    assert found["delta1"] == pytest.approx(sum(max(p / t, t / p) < 1.25 for p, t in pairs) / 30)
    exact = depth_metrics([truth], [truth])
    assert exact["rmse"] == 0 and exact["delta1"] == 1
    assert depth_metrics([np.full((1, 1), 99.0)], [np.full((1, 1), 9.0)])["rmse"] == pytest.approx(1.0)  # into range


@pytest.mark.parametrize(
    ("given", "truth", "options", "message"),
    [
        (np.ones((2, 2)), np.ones((2, 3)), {}, "picture 0: prediction"),
        (np.full((1, 1), NAN), np.ones((1, 1)), {}, "picture 0: the prediction is not finite"),
        (np.ones((1, 1)), np.ones((1, 1)), {"min_depth": 0.0}, "min_depth is 0.0"),
        (np.ones((1, 1)), np.ones((1, 1)), {"max_depth": 1e-4}, "max_depth 0.0001"),
    ],
)
def test_impossible_depths_are_refused(given, truth, options, message):
    with pytest.raises(ValueError, match=message):
        depth_metrics([given], [truth], **options)
    assert math.isnan(depth_metrics([], [])["rmse"])


def test_bins_and_loss_are_those_of_the_case():
    logits = torch.tensor([[0.0, 2.0, -1.0, 3.0]], dtype=torch.float64)
    assert depth_from_bins(logits, 0.001, 10).item() == pytest.approx(7.160778, abs=1e-6)
    image = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    by_pixel = depth_from_bins(image, 0.001, 10)
    assert by_pixel.shape == (2, 3, 5)
    assert by_pixel[1, 2, 3].item() == pytest.approx(depth_from_bins(image[1, :, 2, 3][None], 0.001, 10).item())
    truth = torch.tensor([[1.0, 2.0, 0.0], [4.0, 0.0, 0.0]], dtype=torch.float64)
    given = torch.tensor([[1.5, 1.0, 9.0], [4.0, 3.0, 9.0]], dtype=torch.float64, requires_grad=True)
    assert sig_loss(given, truth).item() == pytest.approx(0.556369, abs=1e-6)
    g = [math.log(p + 1e-3) - math.log(t + 1e-3) for p, t in ((1.5, 1), (1, 2), (4, 4))]
    assert sig_loss(given, truth, warm_up=True).item() == pytest.approx(math.sqrt(0.15) * abs(sum(g) / 3), abs=1e-9)
    nothing = sig_loss(given, torch.zeros_like(truth))
    nothing.backward()
    assert nothing.item() == 0 and torch.equal(given.grad, torch.zeros_like(given))
    with pytest.raises(ValueError, match="differ in shape"):
        sig_loss(given, truth[:1])


def test_the_head_is_linear_in_each_patch():
    head = LinearSegmentation(6, 3).eval()
    patches = torch.randn(2, 6, 4, 5)
    expected = torch.einsum("kd,bdhw->bkhw", head.classify.weight[..., 0, 0], patches / math.sqrt(1 + 1e-5))
    torch.testing.assert_close(head(patches, (4, 5)), expected, atol=1e-5, rtol=1e-4)
    assert head(patches, (16, 20)).shape == (2, 3, 16, 20)

"""Fragility at its edges, its chance correction, and its interval against a bootstrap of images one by one."""

import numpy as np
import pytest
import torch

from hf_vitgeo.metrics.fragility.pure import fragility, fragility_chance_corrected, fragility_interval


def answers(both, only_clean, only_shift, neither):
    """Paired answers with the given counts."""
    clean = np.repeat([1, 1, 0, 0], [both, only_clean, only_shift, neither])
    shift = np.repeat([1, 0, 1, 0], [both, only_clean, only_shift, neither])
    return clean, shift


@pytest.mark.parametrize(
    ("clean", "shift", "value"),
    [(0.8, 0.4, 0.5), (0.5, 0.6, -0.2), (1.0, 0.0, 1.0), (1, 0, 1.0), (0.6406, 0.36215, 0.4346706212925382)]
    + [(64.06, 36.215, 0.4346706212925382), (64.06, 0.0, 1.0), (0.5, 0.5, 0.0)],
)
def test_numbers_give_a_float(clean, shift, value):
    result = fragility(clean, shift)
    assert type(result) is float and result == pytest.approx(value, abs=1e-12)


def test_arrays_lists_and_tensors():
    clean, shift = [0.6406, 0.6568, 0.6901, 0.5682, 0.5595], [0.3621, 0.3710, 0.4839, 0.2013, 0.2072]
    expected = [0.43474867311895093, 0.43514007308160785, 0.29879727575713666, 0.6457233368532207, 0.6296693476318141]
    np.testing.assert_allclose(fragility(clean, shift), expected, atol=1e-12)
    assert isinstance(fragility(clean, shift), np.ndarray)
    tensor = fragility(torch.tensor(clean), torch.tensor(shift, dtype=torch.float64))
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor, expected, atol=1e-6)
    assert fragility(torch.tensor(1), 0.25) == 0.75
    assert fragility(torch.tensor(0.5).bfloat16(), 0.25).dtype == torch.bfloat16
    np.testing.assert_allclose(fragility(0.8, [0.4, 0.8]), [0.5, 0], atol=1e-12)


def test_the_mean_over_seeds_is_of_fragilities():
    clean, shift = [0.64, 0.60], [0.36, 0.42]
    assert fragility(clean, shift).mean() == pytest.approx(0.36875, abs=1e-12)
    assert fragility(np.mean(clean), np.mean(shift)) == pytest.approx(0.3709677419354839, abs=1e-12)


@pytest.mark.parametrize(
    ("clean", "shift", "message"),
    [
        (0.0, 0.3, "accuracy_clean = 0 leaves nothing to lose"),
        (0.0, 0.0, "accuracy_clean = 0 leaves nothing to lose"),
        (0.64, 36.2, "0.64 beside 36.2: fractions and percentages are mixed"),
        (64.0, 0.36, "0.36 beside 64: fractions and percentages are mixed"),
        ([0.64, 64.0], [0.36, 36.0], "fractions and percentages are mixed"),
        (float("nan"), 0.3, "accuracy_clean = nan: accuracies lie in"),
        (0.3, float("inf"), "accuracy_shift = inf: accuracies lie in"),
        (-0.1, 0.2, "accuracy_clean = -0.1: accuracies lie in"),
        (50, 101, "accuracy_shift = 101: accuracies lie in"),
        ([0.5, 0.0, 0.5], [0.1, 0.1, 0.1], r"accuracy_clean\[1\] = 0 leaves nothing to lose"),
        ([[0.5], [0.6]], [[0.1], [-0.1]], r"accuracy_shift\[1, 0\] = -0.1"),
    ],
)
def test_what_has_no_fragility_is_refused(clean, shift, message):
    with pytest.raises(ValueError, match=message):
        fragility(clean, shift)


def test_chance_correction():
    assert fragility_chance_corrected(0.5, 0.1, chance=0.1) == pytest.approx(1, abs=1e-12)
    assert fragility_chance_corrected(0.5, 0.3, chance=0.1) == pytest.approx(0.5, abs=1e-12)
    assert fragility_chance_corrected(0.5, 0.05, chance=0.1) > 1
    assert fragility_chance_corrected(50, 30, chance=10) == pytest.approx(0.5, abs=1e-12)
    # A model near chance looks robust until it is corrected.
    assert fragility(0.12, 0.1) < 0.2 and fragility_chance_corrected(0.12, 0.1, chance=0.1) == pytest.approx(1)
    with pytest.raises(ValueError, match=r"accuracy_clean = 0.1 is not above chance \(chance 0.1\)"):
        fragility_chance_corrected(0.1, 0.05, chance=0.1)
    with pytest.raises(ValueError, match=r"accuracy_clean\[1\] = 0.05 is not above chance"):
        fragility_chance_corrected([0.5, 0.05], 0.05, chance=0.1)
    with pytest.raises(ValueError, match="mixed"):
        fragility_chance_corrected(50, 30, chance=0.1)
    with pytest.raises(ValueError, match="chance = -0.1"):
        fragility_chance_corrected(0.5, 0.3, chance=-0.1)


@pytest.mark.parametrize("chance", [None, 0.1])
def test_interval_equals_a_bootstrap_of_images(chance):
    clean, shift = answers(60, 40, 10, 40)
    generator, values = np.random.default_rng(9), []
    for _ in range(4000):
        drawn = generator.integers(0, clean.size, clean.size)
        a, b = clean[drawn].mean(), shift[drawn].mean()
        values.append(fragility(a, b) if chance is None else fragility_chance_corrected(a, b, chance))
    interval = fragility_interval(clean, shift, n_resamples=4000, chance=chance)
    assert interval == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.02)
    point = fragility(clean.mean(), shift.mean())
    assert chance is not None or interval[0] < point < interval[1]


def test_interval_is_paired():
    """With the same answers before and after, nothing varies, however few images there are."""
    assert fragility_interval(*answers(10, 0, 0, 10)) == (0.0, 0.0)
    assert fragility_interval(*answers(0, 20, 0, 0)) == (1.0, 1.0)
    unpaired = fragility_interval([1] * 10 + [0] * 10, [0] * 10 + [1] * 10)
    assert unpaired[1] - unpaired[0] > 1


def test_interval_narrows_with_images_and_widens_with_confidence():
    few, many = fragility_interval(*answers(6, 4, 1, 4)), fragility_interval(*answers(600, 400, 100, 400))
    assert many[1] - many[0] < few[1] - few[0]
    wide = fragility_interval(*answers(600, 400, 100, 400), confidence=0.99)
    assert wide[0] < many[0] and many[1] < wide[1]


def test_interval_takes_flags_of_any_kind_and_is_repeatable():
    clean, shift = answers(30, 20, 5, 20)
    expected = fragility_interval(clean, shift, seed=3)
    assert fragility_interval(clean.astype(bool), shift.tolist(), seed=3) == expected
    assert fragility_interval(torch.tensor(clean).bool(), torch.tensor(shift), seed=3) == expected
    assert fragility_interval(clean, shift, seed=4) != expected
    assert all(type(end) is float for end in expected)


def test_interval_close_to_chance_is_unbounded_not_tight():
    clean, shift = answers(2, 0, 0, 10)
    with pytest.warns(UserWarning, match="0.1667 of 12 images is too close to 0: fragility is undefined in"):
        assert fragility_interval(clean, shift) == (-np.inf, np.inf)
    with pytest.warns(UserWarning, match="too close to 0.1"):
        low, high = fragility_interval(clean, shift, chance=0.1)
    assert low == -np.inf and high == np.inf


def test_interval_refuses_what_it_cannot_resample():
    clean, shift = answers(3, 2, 1, 4)
    with pytest.raises(ValueError, match="differ in length: 10 and 9 images"):
        fragility_interval(clean, shift[:9])
    with pytest.raises(ValueError, match="accuracy_clean = 0"):
        fragility_interval(np.zeros(5), np.ones(5))
    with pytest.raises(ValueError, match="is not above chance"):
        fragility_interval(clean, shift, chance=0.5)
    for wrong in ([0.5, 1], [[0, 1]], [], [np.nan, 1]):
        with pytest.raises(ValueError, match="correct_clean must be a non-empty vector of 0 and 1"):
            fragility_interval(wrong, wrong)
    for kwargs in ({"n_resamples": 0}, {"confidence": 1.0}, {"confidence": 0}):
        with pytest.raises(ValueError, match="n_resamples >= 1 and 0 < confidence < 1"):
            fragility_interval(clean, shift, **kwargs)
    assert len(fragility_interval(clean, shift, n_resamples=1)) == 2

"""SSDT against scipy, its edges, and its permutation null against brute force."""

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, spearmanr

from hf_vitgeo.metrics.ssdt import pure
from hf_vitgeo.metrics.ssdt.mantel import mantel_null
from hf_vitgeo.metrics.ssdt.pure import average_ranks, grid_distance, ssdt, token_similarity

GRIDS = [(8, 8), (2, 3), (3, 5), (1, 6)]


def by_scipy(similarity, grid, distance="manhattan"):
    above = np.triu_indices(grid[0] * grid[1], k=1)
    return spearmanr(np.asarray(similarity)[above], -grid_distance(grid, distance)[above]).statistic


def random_similarity(grid, seed=0, decimals=None, dtype=np.float64):
    tokens = np.random.default_rng(seed).standard_normal((grid[0] * grid[1], 7))
    similarity = token_similarity(tokens) - 0.05 * grid_distance(grid)
    similarity = (similarity + similarity.T) / 2
    return (similarity if decimals is None else similarity.round(decimals)).astype(dtype)


def six_tokens():
    """Six tokens of width five, and the 2x3 grid they lie on; the cases' own example."""
    rows = [[math.sin(1.1 * i * (k + 1) + 1) for k in range(5)] for i in range(6)]
    tokens = np.array(rows)
    tokens[:, 0] += 0.2 * np.cos(np.arange(6))
    return tokens


def two_by_three():
    """1 / (1 + D) with a twist, on the 2x3 grid, and its right value."""
    outer = np.outer(np.arange(6), np.arange(6))
    return 1 / (1 + grid_distance((2, 3))) + 0.01 * outer, 0.915810939779251


@pytest.mark.parametrize("distance", ["manhattan", "euclidean"])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("decimals", [None, 1])  # rounded similarities are full of ties
def test_equals_scipy(grid, distance, decimals):
    similarity = random_similarity(grid, decimals=decimals)
    expected = by_scipy(similarity, grid, distance)
    assert ssdt(similarity, grid, distance) == pytest.approx(expected, abs=1e-12)
    assert float(ssdt(torch.tensor(similarity), grid, distance)) == pytest.approx(expected, abs=1e-12)
    assert ssdt(similarity.astype(np.float32), grid, distance) == pytest.approx(
        by_scipy(similarity.astype(np.float32), grid, distance), abs=1e-6
    )


@pytest.mark.parametrize("decimals", [None, 1])
def test_ranks_equal_scipy(decimals):
    values = np.random.default_rng(1).standard_normal(501)
    values = values if decimals is None else values.round(decimals)
    np.testing.assert_array_equal(average_ranks(values), rankdata(values))
    rows = torch.tensor(np.stack([values, -values]))
    expected = np.stack([rankdata(values), rankdata(-values)])
    np.testing.assert_array_equal(pure._average_ranks_on_device(rows, torch.float64), expected)


@pytest.mark.parametrize("chunk", [2**24, 1])
@pytest.mark.parametrize("decimals", [None, 1])
def test_the_engine_for_accelerators_equals_the_one_for_cpus(monkeypatch, decimals, chunk):
    monkeypatch.setattr(pure, "_SORTED_AT_ONCE", chunk)
    batch = np.stack([random_similarity((3, 5), seed, decimals) for seed in range(4)])
    batch[1], batch[3] = 0.5, -batch[3]
    batch[2, 0, 3] = np.nan
    pairs, reference = pure._pairs_and_distance_ranks(3, 5, "manhattan")
    flat = batch.reshape(4, -1)
    on_cpu, nan_on_cpu = pure._correlate_on_cpu(flat, pairs, reference)
    on_device, nan_on_device = pure._correlate_on_device(torch.tensor(flat), pairs, reference)
    np.testing.assert_allclose(on_device.numpy(), on_cpu, atol=1e-14)
    assert nan_on_cpu == nan_on_device == 1 and np.isnan(on_cpu[[1, 2]]).all()


def test_batches_keep_their_shape_kind_and_precision():
    batch = np.stack([[random_similarity((3, 5), 2 * i + j) for j in range(3)] for i in range(2)])
    values = ssdt(batch, (3, 5))
    assert values.shape == (2, 3) and values.dtype == np.float64
    assert values[1, 2] == pytest.approx(by_scipy(batch[1, 2], (3, 5)), abs=1e-12)
    tensor = ssdt(torch.tensor(batch, dtype=torch.float32, requires_grad=True), (3, 5))
    assert tensor.shape == (2, 3) and tensor.dtype == torch.float32 and not tensor.requires_grad
    np.testing.assert_allclose(tensor.numpy(), values, atol=1e-6)
    assert ssdt(batch[:0], (3, 5)).shape == (0, 3)


def test_perfect_reverse_and_rescaled():
    distance = grid_distance((4, 5))
    assert ssdt(-distance, (4, 5)) > 1 - 1e-12
    assert ssdt(distance.astype(int).tolist(), [4, 5]) < -1 + 1e-12
    similarity, value = two_by_three()
    assert ssdt(similarity, (2, 3)) == pytest.approx(value, abs=1e-12)
    assert ssdt(3 * similarity + 7, (2, 3)) == pytest.approx(value, abs=1e-12)


def test_a_nan_is_never_ranked():
    similarity, _ = two_by_three()
    similarity[0, 5] = similarity[5, 0] = np.nan
    with pytest.warns(UserWarning, match="nan for 1 of 1 matrices: 1 with a NaN inside, 0 with nothing to rank"):
        assert np.isnan(ssdt(similarity, (2, 3)))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_a_constant_matrix_leaves_the_others_alone(kind):
    similarity, value = two_by_three()
    batch = kind(np.stack([similarity, np.ones((6, 6)), similarity]))
    with pytest.warns(UserWarning, match="nan for 1 of 3 matrices: 0 with a NaN inside, 1 with nothing") as caught:
        values = np.asarray(ssdt(batch, (2, 3)))
    assert len(caught) == 1
    np.testing.assert_allclose(values, [value, np.nan, value], atol=1e-12)


@pytest.mark.parametrize("grid", [(1, 1), (1, 2), (2, 1)])
def test_fewer_than_two_pairs_have_no_correlation(grid):
    with pytest.warns(UserWarning, match="nothing to rank"):
        assert np.isnan(ssdt(np.eye(grid[0] * grid[1]), grid))


def test_distances():
    manhattan, euclidean = grid_distance((2, 3)), grid_distance((2, 3), "euclidean")
    for i in range(6):
        for j in range(6):
            down, right = abs(i // 3 - j // 3), abs(i % 3 - j % 3)
            assert manhattan[i, j] == down + right
            assert euclidean[i, j] == pytest.approx(math.hypot(down, right), abs=1e-15)


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"shape \(6, 6\) does not fit the 3x3 grid, which needs \(..., 9, 9\)"):
        ssdt(np.eye(6), (3, 3))
    with pytest.raises(ValueError, match=r"shape \(9,\)"):
        ssdt(np.ones(9), (3, 3))
    with pytest.raises(ValueError, match='"manhattan" or "euclidean", got \'chebyshev\''):
        ssdt(np.eye(9), (3, 3), distance="chebyshev")
    for grid in [(3, 0), (9,), (3.0, 3.0), 9, "ab"]:
        with pytest.raises(ValueError, match="two positive integers"):
            ssdt(np.eye(9), grid)
    with pytest.raises(ValueError, match=r"\(..., N, D\), got shape \(3,\)"):
        token_similarity(np.ones(3))
    for values in (np.ones((2, 2), complex), torch.ones(2, 2, dtype=torch.complex64)):
        with pytest.raises(TypeError, match="real numbers"):
            token_similarity(values)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_similarity_is_the_cosine(kind):
    tokens = np.random.default_rng(0).standard_normal((2, 5, 4))
    similarity = np.asarray(token_similarity(kind(tokens)))
    for b in range(2):
        for i in range(5):
            for j in range(5):
                x, y = tokens[b, i], tokens[b, j]
                assert similarity[b, i, j] == pytest.approx(x @ y / np.sqrt((x @ x) * (y @ y)), abs=1e-14)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_a_token_of_zeros_is_like_nothing(kind):
    tokens = six_tokens()
    tokens[3] = 0
    similarity = token_similarity(kind(tokens))
    assert np.isfinite(np.asarray(similarity)).all() and not np.asarray(similarity)[3].any()
    assert float(ssdt(similarity, (2, 3))) == pytest.approx(-0.15913663867542954, abs=1e-12)


def test_the_scale_of_tokens_does_not_count():
    value = ssdt(token_similarity(six_tokens()), (2, 3))
    assert ssdt(token_similarity(six_tokens() * 1e-6), (2, 3)) == pytest.approx(value, abs=1e-12)
    # In float16 the squares of these overflow.
    half = torch.tensor(six_tokens() * 3e4).half()
    for tokens in (half, half.numpy()):
        similarity = token_similarity(tokens)
        assert str(similarity.dtype).endswith("float32")
        assert float(ssdt(similarity, (2, 3))) == pytest.approx(0.2480771597049538, abs=1e-6)


def test_autocast_does_not_round_similarities():
    tokens = torch.tensor(six_tokens(), dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = token_similarity(tokens)
    assert inside.dtype == torch.float32 and torch.equal(inside, token_similarity(tokens))


def test_infinite_tokens_end_in_a_nan_that_is_announced():
    tokens = six_tokens()
    tokens[0, 0] = np.inf
    with pytest.warns(UserWarning, match="1 with a NaN inside"):
        assert np.isnan(ssdt(token_similarity(tokens), (2, 3)))


def test_integers_and_bfloat16():
    counts = np.arange(12).reshape(4, 3)
    np.testing.assert_allclose(token_similarity(counts), token_similarity(counts.astype(float)))
    assert token_similarity(torch.tensor(counts)).dtype == torch.float64
    assert token_similarity(torch.tensor(counts).bfloat16()).dtype == torch.float32


def test_null_agrees_with_brute_force():
    grid, generator = (5, 6), np.random.default_rng(3)
    similarity = random_similarity(grid, seed=5)
    brute = []
    for _ in range(600):
        p = generator.permutation(30)
        brute.append(ssdt(similarity[p][:, p], grid))
    null = mantel_null(similarity, grid, n_draws=600, seed=0)
    assert null.shape == (600,) and abs(null.mean()) < 4 * null.std() / np.sqrt(600)
    assert null.std() == pytest.approx(np.std(brute), rel=0.15)
    # The pairs of a token move together: the band is not the 1 / sqrt(M - 1) of M independent pairs alone.
    assert np.quantile(null, [0.05, 0.95]) == pytest.approx(np.quantile(brute, [0.05, 0.95]), abs=0.02)


def test_null_averages_over_matrices_relabelled_one_by_one():
    batch = np.stack([random_similarity((4, 4), seed) for seed in range(9)])
    null = mantel_null(batch, (4, 4), n_draws=500, seed=1)
    alone = np.mean([mantel_null(matrix, (4, 4), 500, seed=1).std() for matrix in batch])
    assert null.std() == pytest.approx(alone / 3, rel=0.15)
    np.testing.assert_array_equal(null, mantel_null(torch.tensor(batch), (4, 4), n_draws=500, seed=1))
    assert not np.array_equal(null, mantel_null(batch, (4, 4), n_draws=500, seed=2))


def test_null_uses_the_same_scale_as_ssdt(monkeypatch):
    class Identity:
        def permutation(self, n):
            return np.arange(n)

    similarity = random_similarity((3, 4), decimals=1)
    monkeypatch.setattr(pure.np.random, "default_rng", lambda seed: Identity())
    null = mantel_null(similarity, (3, 4), n_draws=2, seed=0, distance="euclidean")
    assert null == pytest.approx([ssdt(similarity, (3, 4), "euclidean")] * 2, abs=1e-12)


def test_null_refuses_or_announces_what_it_cannot_draw():
    with pytest.raises(ValueError, match="needs"):
        mantel_null(np.eye(4)[None, None], (2, 2), 5, seed=0)
    with pytest.raises(ValueError, match="n_draws >= 1"):
        mantel_null(np.eye(4), (2, 2), 0, seed=0)
    with pytest.warns(UserWarning, match="1 of 2 matrices"):
        assert np.isnan(mantel_null(np.stack([np.ones((6, 6)), two_by_three()[0]]), (2, 3), 3, seed=0)).all()


def test_numpy_users_do_not_pay_for_torch():
    code = (
        "import sys, numpy as np; from hf_vitgeo.metrics.ssdt.pure import ssdt, token_similarity;"
        "ssdt(token_similarity(np.random.rand(6, 4)), (2, 3));"
        "assert not {'torch', 'scipy', 'evaluate', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_warns_when_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(ssdt(random_similarity((3, 3)), (3, 3)), float)
        assert ssdt(torch.tensor(random_similarity((3, 3))), (3, 3)).ndim == 0

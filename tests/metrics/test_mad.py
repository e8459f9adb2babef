"""Mean attention distance, entropy, support and patch mass against double loops and known patterns."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from hf_vitgeo.metrics.mad.pure import (
    attention_entropy,
    attention_rows,
    attention_support,
    mean_attention_distance,
    patch_mass,
)

VARIANTS = {
    "mean_attention_distance": {},
    "mean_attention_distance_patches": {"normalize": None},
    "mean_attention_distance_unnormalized": {"renormalize": False},
    "mean_attention_distance_no_self": {"exclude_self": True},
}


def random_attention(*shape, dtype=np.float64, seed=0):
    logits = np.random.default_rng(seed).standard_normal(shape) * 2
    weights = np.exp(logits)
    return (weights / weights.sum(-1, keepdims=True)).astype(dtype)


def by_loops(attention, grid, prefix):
    """Every measure of one map with nothing but loops and math."""
    n = grid[0] * grid[1]
    positions = [divmod(i, grid[1]) for i in range(n)]
    largest = math.dist(positions[0], positions[-1])
    sums = dict.fromkeys([*VARIANTS, "attention_entropy", "attention_support", "patch_mass"], 0.0)
    for i in range(n):
        row = [float(attention[prefix + i, prefix + j]) for j in range(n)]
        mass, others = math.fsum(row), math.fsum(row[:i] + row[i + 1 :])
        reach = math.fsum(row[j] * math.dist(positions[i], positions[j]) for j in range(n))
        sums["mean_attention_distance"] += reach / mass / largest / n
        sums["mean_attention_distance_patches"] += reach / mass / n
        sums["mean_attention_distance_unnormalized"] += reach / largest / n
        sums["mean_attention_distance_no_self"] += reach / others / largest / n
        sums["attention_entropy"] -= math.fsum(a / mass * math.log(a / mass) for a in row if a) / math.log(n) / n
        sums["attention_support"] += sum(a > 0 for a in row) / n / n
        sums["patch_mass"] += mass / n
    return sums


def all_measures(attention, grid, prefix):
    values = {name: mean_attention_distance(attention, grid, prefix, **kw) for name, kw in VARIANTS.items()}
    values["attention_entropy"] = attention_entropy(attention, prefix)
    values["attention_support"] = attention_support(attention, prefix)
    values["patch_mass"] = patch_mass(attention, prefix)
    return values


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize(("grid", "prefix"), [((4, 6), 1), ((3, 3), 5), ((1, 8), 0), ((5, 2), 0)])
def test_equals_double_loops(kind, grid, prefix):
    tokens = grid[0] * grid[1] + prefix
    attention = random_attention(2, tokens, tokens)
    attention[attention < 0.05 / tokens] = 0  # so that support is less than 1
    values = all_measures(kind(attention), grid, prefix)
    rows = attention_rows(kind(attention), grid, prefix)
    for b in range(2):
        for name, expected in by_loops(attention[b], grid, prefix).items():
            assert float(values[name][b]) == pytest.approx(expected, abs=1e-12), name
            assert float(rows[name][b].mean()) == pytest.approx(expected, abs=1e-12), name


def test_kind_shape_and_precision_are_kept():
    attention = random_attention(2, 3, 10, 10, dtype=np.float32)
    for maps in (attention, torch.tensor(attention, requires_grad=True)):
        for values in (all_measures(maps, (3, 3), 1), attention_rows(maps, (3, 3), 1)):
            for name, value in values.items():
                assert type(value) is type(maps) and str(value.dtype).endswith("float32"), name
                assert value.shape in ((2, 3), (2, 3, 9))
                assert not getattr(value, "requires_grad", False)
    assert isinstance(mean_attention_distance(attention.astype(float)[0, 0], (3, 3), 1), float)
    assert mean_attention_distance(torch.tensor(attention[0, 0]), (3, 3), 1).ndim == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    half = torch.tensor(random_attention(2, 65, 65)).to(dtype)
    for name, value in all_measures(half, (8, 8), 1).items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), all_measures(half.double(), (8, 8), 1)[name], atol=1e-6, rtol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = all_measures(half.float(), (8, 8), 1)
    assert all(torch.equal(inside[name], value) for name, value in all_measures(half, (8, 8), 1).items())


def test_uniform_attention():
    expected = {(8, 8): 0.41784785364223714, (14, 14): 0.39602136409668864, (4, 6): 0.4413884758442482}
    expected |= {(1, 8): 0.375, (2, 2): 0.6035533905932737}
    for grid, value in expected.items():
        n = grid[0] * grid[1]
        uniform = np.full((3, n, n), 1 / n)
        np.testing.assert_allclose(mean_attention_distance(uniform, grid), [value] * 3, atol=1e-12)
        np.testing.assert_allclose(attention_entropy(uniform), 1, atol=1e-12)
    uniform = np.full((64, 64), 1 / 64)
    without_self = mean_attention_distance(uniform, (8, 8), exclude_self=True)
    assert without_self == pytest.approx(0.424480359255606, abs=1e-12)


def test_one_hot_attention():
    itself = np.eye(6)
    assert mean_attention_distance(itself, (2, 3)) == 0 == attention_entropy(itself)
    assert attention_support(itself) == 1 / 6 and patch_mass(itself) == 1
    with pytest.warns(UserWarning, match="1 have no query with more than 1e-06"):
        assert np.isnan(mean_attention_distance(itself, (2, 3), exclude_self=True))
    first = np.zeros((6, 6))
    first[:, 0] = 0.6
    distances = [0, 1, 2, 1, math.sqrt(2), math.sqrt(5)]
    assert mean_attention_distance(first, (2, 3), normalize=None) == pytest.approx(np.mean(distances), abs=1e-12)
    entropy = attention_entropy(first)
    assert entropy == 0 and not np.signbit(entropy)


def test_class_token_and_a_grid_that_is_not_square():
    """A fifth of each patch row goes to [CLS], the rest falls with distance: each variant has its own number."""
    rows = np.stack(np.divmod(np.arange(24), 6), 1)
    near = np.exp(-np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(-1)) / 1.5)
    attention = np.full((25, 25), 1 / 25)
    attention[1:, 0], attention[1:, 1:] = 0.2, 0.8 * near / near.sum(1, keepdims=True)
    values = all_measures(attention, (4, 6), 1)
    assert values["mean_attention_distance"] == pytest.approx(0.27460903295623024, abs=1e-9)
    assert values["mean_attention_distance_patches"] == pytest.approx(1.6012320610577664, abs=1e-9)
    assert values["mean_attention_distance_unnormalized"] == pytest.approx(0.21968722636498422, abs=1e-9)
    assert values["mean_attention_distance_no_self"] == pytest.approx(0.33091004839752386, abs=1e-9)
    assert values["attention_entropy"] == pytest.approx(0.9014019987818429, abs=1e-9)
    assert values["patch_mass"] == pytest.approx(0.8, abs=1e-12)
    assert mean_attention_distance(attention, (6, 4), 1) == pytest.approx(0.3432893953092727, abs=1e-9)
    with pytest.raises(ValueError, match="25 tokens - 0 prefix = 25 patches, but the grid 4x6 has 24"):
        mean_attention_distance(attention, (4, 6))


def test_entropy_with_exact_zeros():
    rows = np.array(
        [[1, 0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0, 0], [1 / 6] * 6, [0.25, 0.75, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]
        + [[0.2] * 5 + [0]]
    )
    expected = [0, 0.3868528072345416, 1, 0.3138452198949893, 0, 0.8982444017039273]
    np.testing.assert_allclose(
        attention_entropy(np.stack([np.tile(row, (6, 1)) for row in rows])), expected, atol=1e-12
    )
    np.testing.assert_allclose(attention_rows(rows, (2, 3))["attention_entropy"], expected, atol=1e-12)
    assert attention_entropy(rows) == pytest.approx(0.433157071472243, abs=1e-12)
    assert float(attention_entropy(torch.tensor(rows, dtype=torch.float32, requires_grad=True))) == pytest.approx(
        0.433157, abs=1e-6
    )
    with_cls = np.tile([0.4, 0.3, 0.3, 0, 0, 0, 0], (7, 1))
    assert attention_entropy(with_cls, num_prefix_tokens=1) == pytest.approx(0.3868528072345416, abs=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_queries_without_patch_mass_leave(kind):
    """entmax can put all of a row on [CLS]: such a query has no direction, and must not read as a local one."""
    attention = random_attention(5, 5)
    attention[2] = [1, 0, 0, 0, 0]
    attention[3] = [1 - 5e-7, 5e-7, 0, 0, 0]
    attention[4] = [0.5, 0, 0, 0, 0.5]  # only itself
    rows = {name: np.asarray(row) for name, row in attention_rows(kind(attention), (2, 2), 1).items()}
    for name, value in all_measures(kind(attention), (2, 2), 1).items():
        assert float(value) == pytest.approx(np.nanmean(rows[name]), abs=1e-12), name
    assert np.isnan(rows["mean_attention_distance_no_self"]).tolist() == [False, True, True, True]
    for name in ("mean_attention_distance", "mean_attention_distance_unnormalized", "attention_entropy"):
        assert np.isnan(rows[name]).tolist() == [False, True, True, False], name
    np.testing.assert_allclose(rows["patch_mass"], [attention[1, 1:].sum(), 0, 5e-7, 0.5], atol=1e-15)
    np.testing.assert_allclose(rows["attention_support"], [1, 0, 0.25, 0.25])
    assert rows["mean_attention_distance"][3] == rows["attention_entropy"][3] == 0


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_a_map_without_any_patch_mass_is_nan_and_says_so(kind):
    only_cls = np.zeros((2, 5, 5))
    only_cls[:, :, 0] = 1
    only_cls[1] = random_attention(5, 5)
    for measure in (lambda a: mean_attention_distance(a, (2, 2), 1), lambda a: attention_entropy(a, 1)):
        with pytest.warns(UserWarning, match="nan for 1 of 2 attention maps: 1 have no query") as caught:
            values = np.asarray(measure(kind(only_cls)))
        assert len(caught) == 1 and np.isnan(values).tolist() == [True, False]
    assert np.asarray(attention_support(kind(only_cls), 1)).tolist() == [0, 1]
    assert np.asarray(patch_mass(kind(only_cls), 1))[0] == 0


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("key", [1, 2])  # the query's own patch, at distance 0, and another
def test_weights_that_are_not_finite_do_not_leave_in_silence(kind, bad, key):
    attention = random_attention(2, 5, 5)
    attention[0, 1, key] = bad
    measures = [lambda a, kw=kw: mean_attention_distance(a, (2, 2), 1, **kw) for kw in VARIANTS.values()]
    measures += [lambda a, f=f: f(a, 1) for f in (attention_entropy, attention_support, patch_mass)]
    for measure in measures:
        with pytest.warns(UserWarning, match="0 have no query .* 1 have weights that are not finite") as caught:
            values = np.asarray(measure(kind(attention)))
        assert len(caught) == 1 and np.isnan(values).tolist() == [True, False]
    with pytest.warns(UserWarning, match="1 attention rows hold weights that are not finite"):
        rows = attention_rows(kind(attention), (2, 2), 1)
    for name, row in rows.items():
        assert np.isnan(np.asarray(row)).tolist() == [[True, False, False, False], [False] * 4], name


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_negative_weights_are_no_attention(kind):
    with pytest.warns(UserWarning, match="not finite, or negative"):
        assert np.isnan(float(attention_entropy(kind([[1.5, -0.5], [0.5, 0.5]]))))


def test_a_row_close_to_itself_keeps_its_digits_in_float32():
    """1 - .999999 has one digit left in float32; the weight on others has to be summed."""
    attention = np.full((4, 4), 2e-6)
    np.fill_diagonal(attention, 1 - 6e-6)
    exact = mean_attention_distance(attention, (2, 2), exclude_self=True)
    single = mean_attention_distance(attention.astype(np.float32), (2, 2), exclude_self=True)
    assert single == pytest.approx(exact, rel=1e-5)


def test_errors_name_what_is_wrong():
    maps = random_attention(25, 25)
    with pytest.raises(ValueError, match="25 tokens - 1 prefix = 24 patches, but the grid 5x5 has 25"):
        attention_rows(maps, (5, 5), 1)
    with pytest.raises(ValueError, match="1x1 grid"):
        mean_attention_distance(np.ones((1, 1)), (1, 1))
    with pytest.raises(ValueError, match="two patches"):
        attention_entropy(np.ones((2, 2)), num_prefix_tokens=1)
    with pytest.raises(ValueError, match=r"\(..., T, T\), got shape \(24, 25\)"):
        mean_attention_distance(maps[1:], (4, 6))
    with pytest.raises(ValueError, match="\"max\" or None, got 'mean'"):
        mean_attention_distance(maps, (5, 5), normalize="mean")
    for prefix in (-1, 25):
        with pytest.raises(ValueError, match=f"0 to T - 1 of T = 25, got {prefix}"):
            patch_mass(maps, prefix)
    for grid in [(5, 0), (25,), (5.0, 5.0), 25]:
        with pytest.raises(ValueError, match="two positive integers"):
            mean_attention_distance(maps, grid)
    for values in (np.ones((2, 2), complex), torch.ones(2, 2, dtype=torch.complex64)):
        with pytest.raises(TypeError, match="real numbers"):
            attention_support(values)


def test_lists_and_integers():
    assert mean_attention_distance([[0, 1], [1, 0]], [1, 2]) == 1
    assert mean_attention_distance(torch.tensor([[0, 1], [1, 0]]), (1, 2)).dtype == torch.float64


def test_numpy_users_do_not_pay_for_torch():
    code = (
        "import sys, numpy as np; from hf_vitgeo.metrics.mad.pure import attention_rows, patch_mass;"
        "a = np.full((4, 4), .25); attention_rows(a, (2, 2)); patch_mass(a);"
        "assert not {'torch', 'scipy', 'evaluate', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

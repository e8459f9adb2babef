"""Attention locality: how far, how evenly and on how many patches a head attends.

Mean attention distance (MAD) is the attention-weighted distance between a query patch and the patches it attends to
(Dosovitskiy et al. 2021, appendix D.7; Raghu et al. 2021, section 4). "Inducing Spatial Locality in Vision
Transformers through the Training Protocol" (Santiago Toledo & Martinez 2026, arXiv 2605.16390) sets it beside the
normalised entropy. Public scripts differ in what they do with [CLS] and in the unit: see each function.

Every function takes attention maps (..., T, T), rows for queries and columns for keys, the `num_prefix_tokens` (CLS,
registers) first and then the N = T - num_prefix_tokens patches row by row. Prefix queries and keys are always cut out.
Numpy arrays and torch tensors go in, the same kind comes out, without a gradient: these are measures, not losses.
float16 and bfloat16 are computed in float32, integers in float64.

entmax can leave a query no patch at all: a query with patch mass <= 1e-6 leaves the distances and the entropy. A
weight that is not finite never leaves in silence: it makes the result NaN, with a warning.
"""

import sys
import warnings
from functools import lru_cache
from typing import Any

import numpy as np

#: A query with no more than this on the patches has no distance and no entropy: its direction would be rounding noise.
MIN_MASS = 1e-6


@np.errstate(invalid="ignore")  # weights that are not finite get a warning with words
def mean_attention_distance(
    attentions: Any,
    grid_size: tuple[int, int],
    num_prefix_tokens: int = 0,
    normalize: str | None = "max",
    renormalize: bool = True,
    exclude_self: bool = False,
) -> Any:
    """Euclidean distance on the patch grid between query and key, weighted by attention, mean over the patch queries.

    Args:
        attentions: (..., T, T) attention maps.
        grid_size: (rows, columns) of the patch grid.
        num_prefix_tokens: how many tokens stand before the patches.
        normalize: "max" divides by the largest distance on the grid, so that the value lies in [0, 1]; None leaves it
            in patches (times the patch size: in pixels, as Raghu et al. plot it).
        renormalize: make each row sum to 1 again once the prefix keys are cut out. Common public scripts do not, and
            so read attention to [CLS] as locality; False gives their value.
        exclude_self: leave the query's own patch out as well. It tells a head that looks at its neighbours from one
            that looks at itself; a query with nothing but itself leaves. Without `renormalize` only that differs.

    Returns:
        (...) distances, NaN with a warning where no query is left or a weight is not finite.

    Raises:
        ValueError: for maps that do not fit the grid, a bad grid, a grid of one patch, or another `normalize`.
        TypeError: for anything but real numbers.
    """
    if normalize not in ("max", None):
        raise ValueError(f'normalize must be "max" or None, got {normalize!r}')
    block, distance = _block_on_grid(attentions, grid_size, num_prefix_tokens)
    mass, others = _masses(block)
    weight = others if exclude_self else mass
    rows = _weighted_sum(block, distance)  # (..., N); a patch is at distance 0 from itself, so `others` needs no more
    rows = rows / _or_nan(weight) if renormalize else rows
    return _mean_over_queries(rows if normalize else rows * _largest_distance(grid_size), weight)


@np.errstate(invalid="ignore")
def attention_entropy(attentions: Any, num_prefix_tokens: int = 0) -> Any:
    """Entropy of attention over the patch keys, divided by log N, mean over the patch queries.

    -sum_j p_ij log p_ij / log N, with each row renormalised over the N patches and 0 log 0 = 0 exactly: 0 for a query
    that looks at one patch, 1 for one that looks at all of them alike.

    Args:
        attentions: (..., T, T) attention maps.
        num_prefix_tokens: how many tokens stand before the patches.

    Returns:
        (...) values in [0, 1], NaN with a warning where no query is left or a weight is not finite or negative.

    Raises:
        ValueError: for maps that are not square, or fewer than two patches (log 1 = 0).
        TypeError: for anything but real numbers.
    """
    block = _patch_block(attentions, num_prefix_tokens)
    if block.shape[-1] < 2:
        raise ValueError("attention_entropy needs two patches at least: it divides by log N, and log 1 is 0")
    mass, _ = _masses(block)
    return _mean_over_queries(_entropy(block / _or_nan(mass)[..., None]), mass)


def attention_support(attentions: Any, num_prefix_tokens: int = 0) -> Any:
    """Share of the patch keys that get any weight at all, mean over the patch queries.

    1 for softmax; less under entmax, whose weights can be exactly 0. A query without patch mass counts as 0.

    Args:
        attentions: (..., T, T) attention maps.
        num_prefix_tokens: how many tokens stand before the patches.

    Returns:
        (...) shares in [0, 1], NaN with a warning where a weight is not finite.

    Raises:
        ValueError: for maps that are not square or hold no patch.
        TypeError: for anything but real numbers.
    """
    block = _patch_block(attentions, num_prefix_tokens)
    return _mean_over_queries(_support(block, block.sum(-1)), None)


def patch_mass(attentions: Any, num_prefix_tokens: int = 0) -> Any:
    """Attention that falls on patches rather than on prefix tokens, mean over the patch queries.

    Args:
        attentions: (..., T, T) attention maps.
        num_prefix_tokens: how many tokens stand before the patches.

    Returns:
        (...) shares in [0, 1] for rows that sum to 1, NaN with a warning where a weight is not finite.

    Raises:
        ValueError: for maps that are not square or hold no patch.
        TypeError: for anything but real numbers.
    """
    return _mean_over_queries(_finite_or_nan(_patch_block(attentions, num_prefix_tokens).sum(-1)), None)


@np.errstate(invalid="ignore")
def attention_rows(attentions: Any, grid_size: tuple[int, int], num_prefix_tokens: int = 0) -> dict[str, Any]:
    """Every measure of this module for each patch query, for who sums over images while they stream by.

    Args:
        attentions: (..., T, T) attention maps.
        grid_size: (rows, columns) of the patch grid.
        num_prefix_tokens: how many tokens stand before the patches.

    Returns:
        (..., N) values under `mean_attention_distance` (share of the largest distance), `..._patches` (in patches),
        `..._unnormalized` (rows not renormalised), `..._no_self` (own patch left out), `attention_entropy`,
        `attention_support` and `patch_mass`. Their means over the queries that are not NaN are what the functions of
        the same name return. NaN marks a query that leaves a measure; `patch_mass` and `attention_support` have no
        NaN unless a weight of that query is not finite, which makes NaN of all its values, with one warning.

    Raises:
        ValueError: for maps that do not fit the grid, a bad grid, or a grid of one patch.
        TypeError: for anything but real numbers.
    """
    block, distance = _block_on_grid(attentions, grid_size, num_prefix_tokens)
    mass, others = _masses(block)
    share = block / _or_nan(mass)[..., None]  # (..., N, N)
    mad = _weighted_sum(share, distance)  # (..., N)
    finite_mass = _finite_or_nan(mass)
    broken = int((finite_mass != finite_mass).sum())  # NaN differs from itself
    if broken:
        warnings.warn(f"{broken} attention rows hold weights that are not finite", UserWarning, stacklevel=2)
    return {
        "mean_attention_distance": mad,
        "mean_attention_distance_patches": mad * _largest_distance(grid_size),
        "mean_attention_distance_unnormalized": mad * mass,
        "mean_attention_distance_no_self": mad * mass / _or_nan(others),
        "attention_entropy": _entropy(share),
        "attention_support": _support(block, mass),
        "patch_mass": finite_mass,
    }


def _mean_over_queries(rows: Any, weight: Any) -> Any:
    """Mean of (..., N) rows over the queries whose (..., N) weight is above `MIN_MASS`; all of them for None."""
    xp = _namespace(rows)
    kept = xp.ones_like(rows)
    if weight is not None:
        kept = xp.where(weight <= MIN_MASS, 0, kept)  # a weight that is NaN stays, and makes the mean NaN
    count = kept.sum(-1)
    mean = _finite_or_nan(xp.where(kept > 0, rows, 0).sum(-1) / xp.where(count > 0, count, xp.nan))
    n_nan, n_empty = int((mean != mean).sum()), int((count == 0).sum())
    if n_nan:
        warnings.warn(
            f"nan for {n_nan} of {int(np.prod(mean.shape))} attention maps: {n_empty} have no query with more than "
            f"{MIN_MASS} on the patches, {n_nan - n_empty} have weights that are not finite, or negative",
            UserWarning,
            stacklevel=3,
        )
    return mean


def _masses(block: Any) -> tuple[Any, Any]:
    """What each query (..., N) gives to all patches, and to all patches but its own.

    The second is summed, not subtracted: 1 minus a weight close to 1 would keep few digits in float32.
    """
    others = _weighted_sum(block, 1 - np.eye(block.shape[-1]))
    own = block.diagonal(0, -2, -1)  # numpy and torch agree on the order of these arguments
    return others + own, others


def _weighted_sum(block: Any, weights: np.ndarray) -> Any:
    """Sum over keys of (..., N, N) attention times (N, N) weights: (..., N)."""
    if isinstance(block, np.ndarray):
        return np.einsum("...ij,ij->...i", block, weights.astype(block.dtype))
    import torch

    # Not einsum: a matrix product is slower here, and autocast or TF32 would round it.
    return (block * torch.tensor(weights, dtype=block.dtype, device=block.device)).sum(-1)


def _entropy(share: Any) -> Any:
    """Entropy (..., N) of rows (..., N, N) that sum to 1, over log N; NaN for a row with a negative share."""
    if isinstance(share, np.ndarray):
        logs = np.log(share, out=np.zeros_like(share), where=share != 0)
        total = np.einsum("...ij,...ij->...i", share, logs)
    else:
        import torch

        total = torch.special.xlogy(share, share).sum(-1)
    return abs(total) / float(np.log(share.shape[-1]))  # the total is <= 0; abs also turns -0 into 0


def _support(block: Any, mass: Any) -> Any:
    """Share of the keys with weight (..., N); NaN where the mass (..., N) is not finite."""
    # Summed as floats: torch takes four times as long to sum booleans.
    above = (block > 0).astype(block.dtype) if isinstance(block, np.ndarray) else (block > 0).to(block.dtype)
    return above.sum(-1) / block.shape[-1] + 0 * _finite_or_nan(mass)


def _or_nan(weight: Any) -> Any:
    """The weight, or NaN where there is too little of it to divide by."""
    xp = _namespace(weight)
    return xp.where(weight <= MIN_MASS, xp.nan, weight)


def _finite_or_nan(values: Any) -> Any:
    """The values, with NaN for infinities."""
    xp = _namespace(values)
    return xp.where(xp.isfinite(values), values, xp.nan)[()]


def _largest_distance(grid_size: tuple[int, int]) -> float:
    """Distance between opposite corners of the grid, in patches."""
    return float(np.hypot(grid_size[0] - 1, grid_size[1] - 1))


@lru_cache(maxsize=16)
def _relative_distance(height: int, width: int) -> np.ndarray:
    """Euclidean distance (N, N) between patches, as a share of the largest."""
    position = np.stack(np.divmod(np.arange(height * width), width), axis=1)  # (N, 2) row, column
    offset = position[:, None] - position[None]  # (N, N, 2)
    return np.sqrt((offset**2).sum(-1)) / _largest_distance((height, width))


def _block_on_grid(attentions: Any, grid_size: tuple[int, int], num_prefix_tokens: int) -> tuple[Any, np.ndarray]:
    """The patch-to-patch block (..., N, N) and the distances (N, N), after checking that they fit."""
    sides = np.asarray(grid_size)
    if sides.shape != (2,) or sides.dtype.kind not in "iu" or sides.min() < 1:
        raise ValueError(f"grid_size must be two positive integers (rows, columns), got {grid_size!r}")
    height, width = int(sides[0]), int(sides[1])
    if height * width == 1:
        raise ValueError("the 1x1 grid has one patch and no distance: mean attention distance needs two patches")
    block = _patch_block(attentions, num_prefix_tokens)
    n_patches = block.shape[-1]
    if n_patches != height * width:
        raise ValueError(
            f"{n_patches + num_prefix_tokens} tokens - {num_prefix_tokens} prefix = {n_patches} patches, "
            f"but the grid {height}x{width} has {height * width}"
        )
    return block, _relative_distance(height, width)


def _patch_block(attentions: Any, num_prefix_tokens: int) -> Any:
    """Cut the patch-to-patch block (..., N, N) out of (..., T, T) maps, in float32 at least and detached."""
    maps = attentions if hasattr(attentions, "ndim") else np.asarray(attentions)
    if maps.ndim < 2 or maps.shape[-1] != maps.shape[-2]:
        raise ValueError(f"attentions must be (..., T, T), got shape {tuple(maps.shape)}")
    if num_prefix_tokens < 0 or num_prefix_tokens >= maps.shape[-1]:
        raise ValueError(f"num_prefix_tokens must be 0 to T - 1 of T = {maps.shape[-1]}, got {num_prefix_tokens}")
    return _as_float(maps[..., num_prefix_tokens:, num_prefix_tokens:])


def _namespace(values: Any) -> Any:
    """The module, numpy or torch, whose functions fit the values."""
    return np if isinstance(values, np.ndarray | np.generic) else sys.modules["torch"]


def _as_float(values: Any) -> Any:
    """Detach a tensor, make an array of anything else, and lift the precision to float32 at least."""
    torch = sys.modules.get("torch")  # who passes a tensor has imported torch; nobody else should pay for it
    if torch is not None and isinstance(values, torch.Tensor):
        if values.is_complex():
            raise TypeError(f"real numbers are needed, got {values.dtype}")
        values = values.detach()
        if not values.is_floating_point():
            return values.double()
        return values.float() if values.element_size() < 4 else values
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"real numbers are needed, got dtype {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        return array.astype(np.float32, copy=False)
    return array.astype(np.float64, copy=False)

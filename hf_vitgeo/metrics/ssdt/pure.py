"""SSDT: does the similarity of patch tokens fall with their distance on the image grid?

The measure of "Positional Encodings Anchor Spatial Structure in Vision Transformers" (Mannes 2026, arXiv 2606.00124),
which prints it as SSDC. Numpy arrays and torch tensors go in, the same kind comes out, without a gradient: these are
measures, not losses. float16 and bfloat16 are computed in float32, integers in float64.

The rank correlation sorts with numpy on a CPU (many times faster than torch's sort there) and with torch on any other
device. Both give the tied values of a matrix their average rank, as scipy does.
"""

import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

#: Norms below this count as this, so that a token of zeros has similarity 0 and not NaN (paper A's own floor).
NORM_FLOOR = 1e-8
#: How many similarities a device sorts at once: 2**24 float64 ranks and their indices take about 0.5 GB.
_SORTED_AT_ONCE = 2**24


def token_similarity(tokens: Any) -> Any:
    """Cosine similarity of every pair of tokens: the S of the paper for one image.

    Paper A averages S over images before it correlates, so average what this returns and call `ssdt` on that.

    Args:
        tokens: (..., N, D) patch tokens, prefix tokens (CLS, registers) already dropped.

    Returns:
        (..., N, N) cosines in [-1, 1] up to rounding, in float32 at least, also under autocast. A token of zeros has
        similarity 0 with every token, itself included. On CUDA a matmul precision that you lowered (TF32) applies.

    Raises:
        ValueError: for fewer than two dimensions.
        TypeError: for anything but real numbers.
    """
    tokens = _as_float(tokens)
    if tokens.ndim < 2:
        raise ValueError(f"tokens must be (..., N, D), got shape {tuple(tokens.shape)}")
    if isinstance(tokens, np.ndarray):
        with np.errstate(invalid="ignore"):  # an infinite token gives NaN, which `ssdt` reports
            norms = np.linalg.norm(tokens, axis=-1, keepdims=True)  # (..., N, 1)
            unit = tokens / np.maximum(norms, NORM_FLOOR)
            return unit @ np.swapaxes(unit, -1, -2)
    import torch

    # Autocast would round the product to half precision, and the ranks with it.
    with torch.autocast(tokens.device.type, enabled=False):
        unit = tokens / torch.linalg.vector_norm(tokens, dim=-1, keepdim=True).clamp_min(NORM_FLOOR)
        return unit @ unit.transpose(-1, -2)


def grid_distance(grid_size: tuple[int, int], distance: str = "manhattan") -> np.ndarray:
    """Distance between every two patches of a grid that is read row by row.

    Args:
        grid_size: (rows, columns).
        distance: "manhattan" (paper A's D) or "euclidean".

    Returns:
        (N, N) float64 distances in patches, N = rows * columns.

    Raises:
        ValueError: for a grid that is no pair of positive integers, or another distance.
    """
    height, width = _check_grid(grid_size)
    if distance not in ("manhattan", "euclidean"):
        raise ValueError(f'distance must be "manhattan" or "euclidean", got {distance!r}')
    position = np.stack(np.divmod(np.arange(height * width), width), axis=1)  # (N, 2) row, column
    offset = np.abs(position[:, None] - position[None])  # (N, N, 2)
    if distance == "manhattan":
        return offset.sum(-1).astype(np.float64)
    return np.sqrt((offset**2).sum(-1))  # roots of equal integers are equal: equal distances stay exact ties


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, tied values sharing the average of theirs.

    Args:
        values: (M,) without NaN.

    Returns:
        (M,) float64.
    """
    place = np.arange(values.size, dtype=np.int32)
    ordered_ranks, order = _ranks_in_order(values, place, place + 1.0)
    ranks = np.empty(values.size, dtype=np.float64)
    ranks[order] = ordered_ranks
    return ranks


def _ranks_in_order(values: np.ndarray, carried: np.ndarray, untied: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average ranks of the sorted values, and what each carried, in that order.

    Args:
        values: (M,) without NaN.
        carried: (M,), one a value.
        untied: (M,) float64, the ranks of different values: from 1, or around 0.

    Returns:
        (M,) float64 ranks, `untied` itself where no values are equal, and (M,) of what was carried.
    """
    if values.dtype == np.float32:
        # Two radix sorts of 16 bits take a third of the time of argsort. The bits of a float, read as an integer, are
        # in its order once those of negative numbers are turned round.
        bits = (values + np.float32(0)).view(np.int32)  # -0 becomes 0
        bits ^= (bits >> 31) & 0x7FFFFFFF
        order = np.argsort(bits.astype(np.uint16), kind="stable")
        order = order[np.argsort((bits >> 16).astype(np.int16)[order], kind="stable")]
        ordered = bits[order]
    else:
        order = np.argsort(values)  # stability is not needed, ties are averaged
        ordered = values[order]
    carried = carried[order]
    tied = ordered[1:] == ordered[:-1]
    if not tied.any():
        return untied, carried
    first = np.flatnonzero(np.concatenate(([True], ~tied)))  # where each group of equal values starts
    size = np.diff(first, append=values.size)
    return np.repeat((untied[first] + untied[first + size - 1]) / 2, size), carried


def ssdt(similarity: Any, grid_size: tuple[int, int], distance: str = "manhattan") -> Any:
    """Spearman correlation between token similarity and nearness on the grid (the paper's SSDC).

    Spearman's rho of {S_ij} and {-D_ij} over the pairs i < j (Mannes 2026, section 4.2). 1 means that similarity falls
    with distance without an exception, 0 that it ignores the grid, -1 the reverse.

    Args:
        similarity: (..., N, N), as a rule the mean of `token_similarity` over images. Only i < j is correlated.
        grid_size: (rows, columns) of the patch grid, N = rows * columns, tokens row by row.
        distance: "manhattan" as in the paper, or "euclidean".

    Returns:
        (...) values in [-1, 1]. NaN, with one warning for the batch, for a matrix that holds a NaN anywhere, for one
        whose similarities are all equal, and on grids with fewer than two pairs; the other matrices are unaffected.

    Raises:
        ValueError: if the matrices are not N x N for this grid, for a bad grid, or for another distance.
    """
    similarity = _as_float(similarity)
    height, width = _check_grid(grid_size)
    _check_matrices(similarity, (height, width))
    pairs, reference = _pairs_and_distance_ranks(height, width, distance)
    return _rank_correlation(similarity, pairs, reference)


@lru_cache(maxsize=16)
def _pairs_and_distance_ranks(height: int, width: int, distance: str) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices (M,) of the pairs i < j in an (N, N) matrix, and the centred ranks (M,) of minus their distance."""
    matrix = grid_distance((height, width), distance)
    pairs = np.flatnonzero(np.triu(np.ones(matrix.shape, dtype=bool), k=1))
    reference = average_ranks(-matrix.take(pairs)) - (pairs.size + 1) / 2
    return pairs, reference


def _rank_correlation(matrices: Any, pairs: np.ndarray, reference: np.ndarray) -> Any:
    """Spearman correlation of the pairs (M,) of each (N, N) matrix with (M,) ranks that are already centred."""
    batch = tuple(matrices.shape[:-2])
    flat = matrices.reshape(int(np.prod(batch)), matrices.shape[-1] ** 2)  # (B, N * N)
    if isinstance(matrices, np.ndarray) or matrices.device.type == "cpu":
        result, n_nan = _correlate_on_cpu(_to_numpy(flat), pairs, reference)
    else:
        result, n_nan = _correlate_on_device(flat, pairs, reference)
    n_undefined = int((result != result).sum())  # NaN differs from itself
    if n_undefined:
        warnings.warn(
            f"SSDT is nan for {n_undefined} of {len(flat)} matrices: {n_nan} with a NaN inside, {n_undefined - n_nan} "
            "with nothing to rank (all similarities equal, or fewer than two pairs of tokens)",
            UserWarning,
            stacklevel=3,
        )
    if isinstance(matrices, np.ndarray):
        return result.reshape(batch)[()].astype(matrices.dtype)
    import torch

    return torch.as_tensor(result, dtype=matrices.dtype, device=matrices.device).reshape(batch)


def _correlate_on_cpu(flat: np.ndarray, pairs: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, int]:
    """Correlations (B,) in float64 of the rows of (B, N * N), and how many rows hold a NaN."""
    result = np.full(len(flat), np.nan)
    with_nan = np.isnan(flat).any(-1)  # (B,)
    untied = np.arange(pairs.size) - (pairs.size - 1) / 2
    # einsum, because BLAS would start threads for products of this length, which fight with torch's: 3 times slower
    square = np.einsum("i,i", reference, reference)

    def correlate(rows: np.ndarray) -> None:
        for index in rows:
            ranks, target = _ranks_in_order(flat[index].take(pairs), reference, untied)
            scale = np.sqrt(np.einsum("i,i", ranks, ranks) * square)  # one root, so that equal ranks give 1 exactly
            if scale > 0:
                result[index] = np.clip(np.einsum("i,i", ranks, target) / scale, -1, 1)

    good = np.flatnonzero(~with_nan)
    threads = min(_num_threads(), len(good))
    if threads < 2:
        correlate(good)
    else:
        with ThreadPoolExecutor(threads) as pool:  # numpy sorts without holding the interpreter's lock
            list(pool.map(correlate, np.array_split(good, threads)))
    return result, int(with_nan.sum())


def _num_threads() -> int:
    """As many as torch uses, where it is there: it knows of other processes on the machine (OMP_NUM_THREADS)."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None else os.cpu_count() or 1


def _correlate_on_device(flat: Any, pairs: np.ndarray, reference: np.ndarray) -> tuple[Any, int]:
    """The same as `_correlate_on_cpu` for a torch tensor, without leaving its device."""
    import torch

    dtype = torch.float32 if flat.device.type == "mps" else torch.float64  # MPS has no float64
    index = torch.tensor(pairs, device=flat.device)
    target = torch.tensor(reference, dtype=dtype, device=flat.device)
    results = [torch.empty(0, dtype=dtype, device=flat.device)]
    for rows in flat.split(max(1, _SORTED_AT_ONCE // max(1, pairs.size))):
        ranks = _average_ranks_on_device(rows[:, index], dtype) - (pairs.size + 1) / 2  # (b, M)
        scale = ((ranks * ranks).sum(-1) * (target * target).sum()).sqrt()
        rho = ((ranks * target).sum(-1) / scale).clamp(-1, 1)  # 0/0, a constant, is NaN
        results.append(rho.masked_fill(rows.isnan().any(-1), torch.nan))
    return torch.cat(results), int(flat.isnan().any(-1).sum())


def _average_ranks_on_device(rows: Any, dtype: Any) -> Any:
    """Average ranks of each row of a (B, M) tensor, all rows at once."""
    import torch

    ordered, order = torch.sort(rows, dim=-1)
    n_values = rows.shape[-1]
    ranks = torch.arange(1, n_values + 1, device=rows.device).expand_as(rows)
    tied = ordered[:, 1:] == ordered[:, :-1]
    if tied.any():
        # The first rank of a group is carried forward, the last one backward; their mean is the average rank.
        first = ranks.clone()
        first[:, 1:][tied] = 0
        last = ranks.clone()
        last[:, :-1][tied] = n_values
        ranks = first.cummax(-1).values + last.flip(-1).cummin(-1).values.flip(-1)
        ranks = ranks.to(dtype) / 2
    return torch.empty_like(rows, dtype=dtype).scatter_(-1, order, ranks.to(dtype))


def _check_grid(grid_size: tuple[int, int]) -> tuple[int, int]:
    """Return the grid as two built-in integers, or refuse it."""
    sides = np.asarray(grid_size)
    if sides.shape != (2,) or sides.dtype.kind not in "iu" or sides.min() < 1:
        raise ValueError(f"grid_size must be two positive integers (rows, columns), got {grid_size!r}")
    return int(sides[0]), int(sides[1])


def _check_matrices(similarity: Any, grid: tuple[int, int]) -> None:
    """Refuse similarities that are not (..., N, N) for the grid."""
    n_tokens = grid[0] * grid[1]
    if similarity.ndim < 2 or tuple(similarity.shape[-2:]) != (n_tokens, n_tokens):
        raise ValueError(
            f"similarity of shape {tuple(similarity.shape)} does not fit the {grid[0]}x{grid[1]} grid, which needs "
            f"(..., {n_tokens}, {n_tokens}): drop the prefix tokens (CLS, registers) before measuring"
        )


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


def _to_numpy(values: Any) -> np.ndarray:
    """The same numbers as a numpy array, shared where a CPU tensor allows it."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()

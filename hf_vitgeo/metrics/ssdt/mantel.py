"""The null of SSDT: what it would be if place said nothing."""

from typing import Any

import numpy as np

from .pure import (
    _as_float,
    _check_grid,
    _check_matrices,
    _pairs_and_distance_ranks,
    _rank_correlation,
    _to_numpy,
    average_ranks,
)


def mantel_null(
    similarity: Any, grid_size: tuple[int, int], n_draws: int, seed: int, distance: str = "manhattan"
) -> np.ndarray:
    """What SSDT reads when similarities carry content that has nothing to do with the grid.

    The permutation null of Mantel (1967, Cancer Research 27:209-220): relabel the tokens at random, rows and columns
    together (the pairs of a token move together, so shuffling pairs would give too narrow a band), and measure again.
    In each draw every matrix gets a relabelling of its own, and the draw is the mean over the P matrices.

    Args:
        similarity: (P, N, N) or (N, N).
        grid_size: (rows, columns), N = rows * columns.
        n_draws: how many draws.
        seed: of the relabellings; the same seed gives the same draws.
        distance: as for `ssdt`.

    Returns:
        (n_draws,) float64 array, NaN throughout (with a warning) if `ssdt` is undefined for one of the matrices.

    Raises:
        ValueError: as `ssdt`, for another number of dimensions, for no matrix, or for n_draws < 1.
    """
    matrices = _to_numpy(_as_float(similarity))
    height, width = _check_grid(grid_size)
    _check_matrices(matrices, (height, width))
    matrices = matrices[None] if matrices.ndim == 2 else matrices  # (P, N, N)
    if matrices.ndim != 3 or not len(matrices) or n_draws < 1:
        raise ValueError(f"mantel_null needs (P, N, N) and n_draws >= 1, got {matrices.shape} and {n_draws}")
    pairs, reference = _pairs_and_distance_ranks(height, width, distance)
    if np.isnan(_rank_correlation(matrices, pairs, reference)).any():
        return np.full(n_draws, np.nan)
    ranks = [average_ranks(matrix.take(pairs)) - (pairs.size + 1) / 2 for matrix in matrices]
    # A relabelling changes neither the ranks nor their spread: rank once, scale once, then only look up.
    scaled = [_symmetric(row / np.sqrt(row @ row * (reference @ reference)), pairs, height * width) for row in ranks]
    target = _symmetric(reference, pairs, height * width)
    generator = np.random.default_rng(seed)
    draws = np.empty(n_draws)
    for draw in range(n_draws):
        relabellings = (generator.permutation(height * width) for _ in scaled)
        # Each pair stands in the symmetric matrices twice.
        each = [np.vdot(m.take(p, 0).take(p, 1), target) / 2 for m, p in zip(scaled, relabellings, strict=True)]
        draws[draw] = np.mean(each)
    return draws


def _symmetric(values: np.ndarray, pairs: np.ndarray, n_tokens: int) -> np.ndarray:
    """Spread (M,) values of the pairs i < j over a symmetric (N, N) matrix with a zero diagonal."""
    matrix = np.zeros((n_tokens, n_tokens))
    matrix.flat[pairs] = values
    return matrix + matrix.T

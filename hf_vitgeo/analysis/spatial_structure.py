"""Is spatial structure anchored to the index? SSDT by depth, under RPI with a null band, over alpha (paper A)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from hf_vitgeo.analysis.adapters import adapter_for
from hf_vitgeo.analysis.recorder import record
from hf_vitgeo.analysis.samples import Sample
from hf_vitgeo.metrics.ssdt.mantel import mantel_null

N_PERMUTATIONS = 16
NULL_DRAWS = 500
#: Paper A sweeps 1.0, .9 ... .1; 0 is added, where nothing of the encoding is left.
ALPHAS = tuple(round(0.1 * tenth, 1) for tenth in range(11))

Progress = Callable[[int], Any]


def permutations(n_tokens: int, count: int, seed: int) -> list[torch.Tensor]:
    """Seeded random permutations of the patch tokens.

    Args:
        n_tokens: patch tokens N.
        count: how many.
        seed: the same seed gives the same list; fewer are a prefix of more.

    Returns:
        `count` LongTensors (N,).
    """
    return [torch.from_numpy(np.random.default_rng((seed, p)).permutation(n_tokens)) for p in range(count)]


def ssdt_under_rpi(
    model: Any,
    sample: Sample,
    n_permutations: int = N_PERMUTATIONS,
    seed: int = 0,
    position_scale: float | None = None,
    num_layers: int | None = None,
    progress: Progress = lambda n: None,
) -> tuple[np.ndarray, np.ndarray]:
    """SSDT of every layer under each of P permutations, each shared by all pictures (paper A's RPI at P = 1).

    Args:
        model: a ViT that the recorder supports.
        sample: pictures.
        n_permutations: P.
        seed: of the permutations.
        position_scale: alpha for these passes.
        num_layers: only the first so many blocks.
        progress: called with 1 after every pass.

    Returns:
        SSDT (P, L + 1) and the averaged similarities (P, L + 1, N, N).

    Raises:
        ValueError: as `record` does.
    """
    n_tokens = _n_tokens(model, sample)
    values, similarities = [], []
    for permutation in permutations(n_tokens, n_permutations, seed):
        found = record(
            model,
            sample.batches(),
            token_permutation=permutation,
            position_scale=position_scale,
            attentions=False,
            per_image=False,
            num_layers=num_layers,
        )
        values.append(found["ssdt"])
        similarities.append(found["similarity"])
        progress(1)
    return np.stack(values), np.stack(similarities)


def structure_records(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """Records of the plain pass: SSDT of each layer, and mean and s.d. of SSDT over pictures.

    Args:
        recorded: result of `record` with `per_image`.

    Returns:
        Records without the fields that name model and data.
    """
    rows = []
    for layer, value in enumerate(recorded["ssdt"]):
        rows.append({"metric": "ssdt", "layer": layer, "value": value})
        each = recorded["ssdt_per_image"][:, layer]
        each = each[np.isfinite(each)]
        if len(each):
            spread = {"kind": "sd", "value": each.std(ddof=1) if len(each) > 1 else None}
            rows.append({"metric": "ssdt_per_image", "layer": layer, "value": each.mean(), "spread": spread})
    return rows


def rpi_records(
    values: np.ndarray, similarities: np.ndarray, grid_size: tuple[int, int], seed: int = 0
) -> list[dict[str, Any]]:
    """Records of the RPI passes: SSDT with s.d. and s.e. over permutations, and the permutation null of its mean.

    Args:
        values: (P, L + 1) from `ssdt_under_rpi`.
        similarities: (P, L + 1, N, N) likewise.
        grid_size: (rows, columns).
        seed: of the null's draws.

    Returns:
        Records without the fields that name model and data.
    """
    rows = []
    for layer in range(values.shape[1]):
        rows.append({"metric": "ssdt", "layer": layer, **_over_permutations(values[:, layer])})
        null = mantel_null(similarities[:, layer], grid_size, NULL_DRAWS, seed)
        low, high = np.quantile(null, (0.025, 0.975))
        band = {"kind": "interval95", "low": low, "high": high, "sd": null.std(ddof=1)}
        rows.append(
            {
                "metric": "ssdt",
                "layer": layer,
                "intervention": "rpi_null",
                "n_permutations": len(values),
                "value": null.mean(),
                "spread": band,
            }
        )
    return rows


def alpha_records(
    model: Any,
    sample: Sample,
    alphas: Sequence[float] = ALPHAS,
    n_permutations: int = N_PERMUTATIONS,
    seed: int = 0,
    progress: Progress = lambda n: None,
) -> list[dict[str, Any]]:
    """Delta SSDT over alpha: SSDT of layer 1 minus that of layer 0, under RPI (paper A, section 5.5).

    Args:
        model: a ViTGeo model with a learned or sinusoidal encoding.
        sample: pictures.
        alphas: factors on the encoding, [CLS] slot included.
        n_permutations: P of each alpha.
        seed: of the permutations.
        progress: called with 1 after every pass.

    Returns:
        For each alpha, `ssdt` of layers 0 and 1 and `delta_ssdt`, without the fields that name model and data.

    Raises:
        ValueError: for a model without an encoding that alpha scales.
    """
    rows = []
    for alpha in alphas:
        values, _ = ssdt_under_rpi(model, sample, n_permutations, seed, alpha, num_layers=1, progress=progress)
        for layer in (0, 1):
            rows.append(
                {"metric": "ssdt", "layer": layer, "position_scale": alpha, **_over_permutations(values[:, layer])}
            )
        delta = values[:, 1] - values[:, 0]
        rows.append({"metric": "delta_ssdt", "position_scale": alpha, **_over_permutations(delta)})
    return rows


def _over_permutations(values: np.ndarray) -> dict[str, Any]:
    """Mean, s.d. and s.e. over permutations; no spread from a single one."""
    sd = values.std(ddof=1) if len(values) > 1 else None
    error = None if sd is None else sd / np.sqrt(len(values))
    return {
        "intervention": "rpi",
        "n_permutations": len(values),
        "value": values.mean(),
        "spread": {"kind": "sd", "value": sd, "standard_error": error},
    }


def _n_tokens(model: Any, sample: Sample) -> int:
    rows, columns = adapter_for(model).grid_size(*sample.images.shape[1:3])
    return rows * columns

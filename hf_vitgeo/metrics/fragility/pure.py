"""Fragility: the share of its accuracy that a model loses when the images shift.

FS = 1 - A_shift / A_clean, top-1, from "Positional Encodings Anchor Spatial Structure in Vision Transformers" (Mannes
2026, arXiv 2606.00124, section 4.6). A model close to chance has little to lose and so looks robust: read fragility
beside the clean accuracy, its interval and the chance-corrected value.
"""

import sys
import warnings
from typing import Any

import numpy as np


def fragility(accuracy_clean: Any, accuracy_shift: Any) -> Any:
    """The paper's fragility score, 1 - accuracy_shift / accuracy_clean, element by element.

    For several seeds, average the fragilities; the fragility of the average accuracies is another number.

    Args:
        accuracy_clean: top-1 accuracy on clean images: a number, list, array or tensor. Fractions or percentages.
        accuracy_shift: accuracy on the shifted images, on the same scale; shapes broadcast.

    Returns:
        A float for two numbers, else an array (a tensor if one was given). 0 where nothing is lost, 1 where everything
        is, negative where the shift helps.

    Raises:
        ValueError: for a clean accuracy of 0; for accuracies that are NaN, negative or above 100; for values above 1
            beside fractions.
    """
    return _corrected(accuracy_clean, accuracy_shift, chance=0.0)


def fragility_chance_corrected(accuracy_clean: Any, accuracy_shift: Any, chance: float) -> Any:
    """Fragility of what is better than guessing: 1 - (accuracy_shift - chance) / (accuracy_clean - chance).

    A correction of this project, not of the paper: 1 means that the shift left nothing but guessing.

    Args:
        accuracy_clean: as for `fragility`.
        accuracy_shift: as for `fragility`.
        chance: accuracy of a guess, 1 / n_classes for balanced classes, on the same scale as the accuracies.

    Returns:
        As `fragility`; above 1 where the shifted accuracy is below chance.

    Raises:
        ValueError: for a clean accuracy that is not above chance, and as for `fragility`.
    """
    return _corrected(accuracy_clean, accuracy_shift, chance)


def fragility_interval(
    correct_clean: Any,
    correct_shift: Any,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    chance: float | None = None,
) -> tuple[float, float]:
    """Percentile interval of fragility by a paired bootstrap: images are resampled with both their answers.

    Fragility depends on the images only through how many are right or wrong before and after the shift, so a
    resample is one multinomial draw of these four counts: exact, and as cheap for a million images as for ten.

    A resample whose clean accuracy is 0 (or not above chance) has no fragility. It counts as minus infinity for the
    low end and as infinity for the high end: leaving it out would make an unreliable interval look tight.

    Args:
        correct_clean: (n_images,) True or 1 where the clean image is classified correctly.
        correct_shift: (n_images,) the same for the same images after the shift, in the same order.
        n_resamples: how many resamples.
        confidence: share of the resamples inside the interval.
        seed: of the resampling; the same seed gives the same interval.
        chance: if given, the interval is that of `fragility_chance_corrected`; a fraction.

    Returns:
        (low, high). Infinite ends, with a warning, where too many resamples have no fragility.

    Raises:
        ValueError: for anything but two equally long vectors of 0 and 1, for a clean accuracy of 0 (or not above
            chance), for n_resamples < 1, or for a confidence outside (0, 1).
    """
    clean, shift = _flags(correct_clean, "correct_clean"), _flags(correct_shift, "correct_shift")
    if clean.shape != shift.shape:
        raise ValueError(f"correct_clean and correct_shift differ in length: {clean.size} and {shift.size} images")
    if n_resamples < 1 or not 0 < confidence < 1:
        raise ValueError(f"need n_resamples >= 1 and 0 < confidence < 1, got {n_resamples} and {confidence}")
    floor = 0.0 if chance is None else chance
    _corrected(clean.mean(), shift.mean(), floor)  # refuses a sample that has no fragility to put an interval around
    # Both right, only the clean one, only the shifted one, neither: the four cells of the paired table.
    cells = np.array([(clean & shift).sum(), (clean & ~shift).sum(), (~clean & shift).sum(), (~clean & ~shift).sum()])
    counts = np.random.default_rng(seed).multinomial(clean.size, cells / clean.size, size=n_resamples)  # (R, 4)
    above_clean = (counts[:, 0] + counts[:, 1]) / clean.size - floor  # (R,)
    above_shift = (counts[:, 0] + counts[:, 2]) / clean.size - floor
    defined = above_clean > 0
    values = 1 - above_shift / np.where(defined, above_clean, 1)
    outside = int((1 - confidence) / 2 * (n_resamples - 1))  # resamples beyond each end
    low = float(np.sort(np.where(defined, values, -np.inf))[outside])
    high = float(np.sort(np.where(defined, values, np.inf))[n_resamples - 1 - outside])
    if not (np.isfinite(low) and np.isfinite(high)):
        warnings.warn(
            f"the clean accuracy {clean.mean():.4g} of {clean.size} images is too close to {floor:g}: fragility is "
            f"undefined in {n_resamples - int(defined.sum())} of {n_resamples} resamples, the interval is unbounded",
            UserWarning,
            stacklevel=2,
        )
    return low, high


def _corrected(accuracy_clean: Any, accuracy_shift: Any, chance: float) -> Any:
    """1 - (shift - chance) / (clean - chance) of checked accuracies, in the kind that came in."""
    clean, shift = np.broadcast_arrays(_to_float64(accuracy_clean), _to_float64(accuracy_shift))
    floor = _to_float64(chance)
    for name, values in (("accuracy_clean", clean), ("accuracy_shift", shift), ("chance", floor)):
        wrong = ~((values >= 0) & (values <= 100))  # NaN is neither
        if wrong.any():
            raise ValueError(f"{name}{_first(wrong, values)}: accuracies lie in [0, 1], or [0, 100] as percentages")
    given = np.concatenate([clean.ravel(), shift.ravel(), floor.ravel()])
    if (given > 1).any() and ((given > 0) & (given <= 1)).any():
        low, high = given[(given > 0) & (given <= 1)].min(), given.max()
        raise ValueError(f"{low:g} beside {high:g}: fractions and percentages are mixed; give fractions for all")
    wrong = clean <= floor
    if wrong.any():
        why = "is not above chance" if chance else "leaves nothing to lose, 1 - A_shift / 0 is undefined"
        limit = f" (chance {float(chance):g})" if chance else ""
        raise ValueError(f"accuracy_clean{_first(wrong, clean)} {why}{limit}")
    return _like(1 - (shift - floor) / (clean - floor), accuracy_clean, accuracy_shift)


def _first(wrong: np.ndarray, values: np.ndarray) -> str:
    """The first wrong value for a message: " = 0.0", or "[2] = 0.0" within an array."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return f"{place} = {values[index]:g}"


def _flags(correct: Any, name: str) -> np.ndarray:
    """A non-empty vector of booleans, or an error that says what was given."""
    values = _to_float64(correct)
    if values.ndim != 1 or not values.size or not np.isin(values, (0, 1)).all():
        raise ValueError(f"{name} must be a non-empty vector of 0 and 1 (or bool), one an image; shape {values.shape}")
    return values.astype(bool)


def _is_tensor(values: Any) -> bool:
    """Whether this is a torch tensor; asked without importing torch for who has none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def _to_float64(values: Any) -> np.ndarray:
    """The numbers as a float64 numpy array."""
    return np.asarray(values.detach().cpu().double().numpy() if _is_tensor(values) else values, dtype=np.float64)


def _like(result: np.ndarray, *inputs: Any) -> Any:
    """A tensor on the device of the first tensor among the inputs, else an array, a float for a single number."""
    tensor = next((value for value in inputs if _is_tensor(value)), None)
    if tensor is None:
        return float(result) if np.ndim(result) == 0 else result
    import torch

    dtype = tensor.dtype if tensor.dtype.is_floating_point else torch.get_default_dtype()
    return torch.as_tensor(result, dtype=dtype, device=tensor.device)

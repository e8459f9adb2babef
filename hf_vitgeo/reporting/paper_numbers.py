"""What papers A and B print, for the marks beside ours. Each number says where it is from."""

import numpy as np

from hf_vitgeo.reporting.records import BLUR, JPEG
from hf_vitgeo.reporting.tables import PAPER_A

# Paper A, read off the vector curves of its figures (4 seeds, 12 layers, accurate to .002).
PAPER_A_PLAIN: dict[str, tuple[float, ...]] = {
    # figure 1
    "untrained": (0.577, 0.595, 0.610, 0.620, 0.626, 0.633, 0.641, 0.647, 0.651, 0.656, 0.660, 0.664),
    # appendix figure C.1
    "none": (0.494, 0.586, 0.607, 0.638, 0.640, 0.645, 0.646, 0.649, 0.652, 0.653, 0.652, 0.654),
    "learned": (0.539, 0.671, 0.693, 0.684, 0.661, 0.646, 0.632, 0.634, 0.639, 0.642, 0.643, 0.643),
    "sinusoidal": (0.486, 0.693, 0.702, 0.676, 0.638, 0.610, 0.588, 0.596, 0.600, 0.604, 0.601, 0.604),
    "rope": (0.477, 0.574, 0.568, 0.622, 0.641, 0.660, 0.662, 0.665, 0.667, 0.669, 0.670, 0.670),
    # appendix figure C.2
    "learned_rpt": (0.540, 0.611, 0.611, 0.645, 0.664, 0.676, 0.683, 0.686, 0.690, 0.693, 0.693, 0.694),
}
#: Figure 2 (SSDT under RPI); of the collapsed conditions the paper's ends are known.
PAPER_A_RPI: dict[str, tuple[float, ...]] = {
    "learned": (0.005, 0.474, 0.491, 0.461, 0.425, 0.394, 0.375, 0.372, 0.375, 0.382, 0.391, 0.397),
    "rope": (-0.008, -0.008, -0.004, 0.031, 0.082, 0.145, 0.189, 0.231, 0.266, 0.294, 0.313, 0.321),
    "sinusoidal": (0.235, 0.532, 0.584, 0.561, 0.504, 0.467, 0.447, 0.451, 0.453, 0.457, 0.453, 0.459),
}
#: Tables of appendix B: gain of SSDT in the first block under RPI, and JPEG fragility, by alpha. Zeros stand for what
#: the paper calls negligible. Sinusoidal: one seed.
PAPER_A_ALPHA: dict[str, dict[float, tuple[float, float]]] = {
    "learned": {
        1.0: (0.4725, 0.4338),
        0.9: (0.3850, 0.4520),
        0.8: (0.3125, 0.4780),
        0.7: (0.1845, 0.5145),
        0.6: (0.0975, 0.5597),
        0.5: (0.0475, 0.5975),
        0.4: (0.0, 0.6272),
        0.3: (0.0, 0.6425),
        0.2: (0.0, 0.6483),
        0.1: (0.0, 0.6522),
    },
    "sinusoidal": {
        1.0: (0.29, 0.4415),
        0.9: (0.28, 0.4526),
        0.8: (0.25, 0.4674),
        0.7: (0.24, 0.4868),
        0.6: (0.25, 0.5065),
        0.5: (0.21, 0.5204),
        0.4: (0.17, 0.5492),
        0.3: (0.13, 0.5756),
        0.2: (0.07, 0.6091),
        0.1: (0.022, 0.6357),
    },
}
#: Paper B on CIFAR-100: the minimum MAD of two cells; of the others only bounds are known, (least, most).
PAPER_B_MIN_MAD: dict[str, tuple[float | None, float | None]] = {
    "baseline": (0.316, 0.316),
    "modern": (0.008, 0.008),
    **dict.fromkeys(("autoaugment", "label_smoothing", "no_cutmix"), (0.210, None)),
    **dict.fromkeys(("cutmix", "no_autoaugment", "no_label_smoothing"), (None, 0.024)),
}
SOURCE_B = "paper B, compact ViT, CIFAR-100, one seed"


def paper_a(cell: str, number: str) -> float | None:
    """A number of paper A's appendix D: "accuracy", a shift's name for fragility; None where it has none."""
    return PAPER_A.get(cell.replace("_", "+"), {}).get(number)


def depth_of(count: int) -> np.ndarray:
    """Places of paper A's twelve layers (each the input of a block) on an axis of `count` layers of ours.

    Args:
        count: how many layers we measure, the last being the output of the last block.

    Returns:
        (12,) places; the first layers coincide, and so do the inputs of the last blocks.
    """
    return np.linspace(0, max(count - 2, 0), 12)


FRAGILITY_TITLES = {BLUR: "blur", JPEG: "JPEG"}

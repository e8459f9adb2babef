"""What paper B claims, as statements that result files decide. No torch."""

import math
from collections.abc import Mapping
from functools import partial

from hf_vitgeo.reporting.grids import Run, Runs, layers_of, minimum_mad, value_of
from hf_vitgeo.reproduction.quantities import Of, by_seed, difference, missing
from hf_vitgeo.reproduction.statistics import Claim, Condition

#: A protocol leaves the most local head alone if minimum MAD moves by less: a tenth of what paper B finds between its
#: baseline and its modern protocol (.316 and .008).
SAME_MAD = 0.03


def _accuracy(run: Run) -> float:
    return value_of(run, "accuracy")


#: Paper B's parts by cell, for its 2x2x2 design.
_PARTS: Mapping[str, frozenset[str]] = {
    "baseline": frozenset(),
    "autoaugment": frozenset({"autoaugment"}),
    "cutmix": frozenset({"cutmix"}),
    "label_smoothing": frozenset({"label_smoothing"}),
    "no_autoaugment": frozenset({"cutmix", "label_smoothing"}),
    "no_cutmix": frozenset({"autoaugment", "label_smoothing"}),
    "no_label_smoothing": frozenset({"autoaugment", "cutmix"}),
    "modern": frozenset({"autoaugment", "cutmix", "label_smoothing"}),
}


def effect(runs: Runs, parts: frozenset[str], of: Of) -> dict[int, float]:
    """Main effect of one part of the protocol, or the interaction of several, in the 2x2x2 design, seed by seed.

    Args:
        runs: of a grid of paper B.
        parts: names of the parts.
        of: the number.

    Returns:
        The contrast: the mean over cells where an even number of `parts` is absent minus that over the others; empty
        for seeds without all eight cells.
    """
    seeds = set.intersection(*(set(runs.get(cell, {})) for cell in _PARTS))
    sign = {cell: (-1) ** len(parts - has) for cell, has in _PARTS.items()}
    return {seed: sum(sign[cell] * of(runs[cell][seed]) for cell in _PARTS) / 4 for seed in sorted(seeds)}


def _third(run: Run, metric: str, last: bool = False) -> float:
    found = layers_of(run, metric)
    if not len(found):
        return math.nan
    size = max(1, len(found) // 3)
    return float((found[-size:] if last else found[:size]).mean())


def _deeper(run: Run, metric: str) -> float:
    return _third(run, metric, last=True) - _third(run, metric)


def claims_of_paper_b(runs: Runs) -> list[Claim]:
    """Judge the claims of paper B.

    Args:
        runs: of a grid, by cell and seed.

    Returns:
        The claims.
    """
    with_cutmix = [cell for cell, parts in _PARTS.items() if "cutmix" in parts]
    without = [cell for cell in _PARTS if cell not in with_cutmix]
    minimum = {cell: by_seed(runs, cell, minimum_mad) for cell in runs}
    complete = set.intersection(*(set(minimum.get(cell, {})) for cell in _PARTS))
    gap = {
        seed: min(minimum[cell][seed] for cell in without) - max(minimum[cell][seed] for cell in with_cutmix)
        for seed in sorted(complete)
    }

    def moved(control: str) -> dict[int, float]:
        """By how much more a control moves minimum MAD than half of what CutMix does."""
        cutmix = difference(runs, "cutmix", "baseline", minimum_mad)
        mine = difference(runs, control, "baseline", minimum_mad)
        return {seed: abs(mine[seed]) - abs(cutmix[seed]) / 2 for seed in mine if seed in cutmix}

    early = {
        name: difference(runs, "modern", "baseline", partial(_third, metric=metric))
        for name, metric in (("MAD", "mean_attention_distance"), ("entropy", "attention_entropy"))
    }
    deeper = {
        name: by_seed(runs, "modern", partial(_deeper, metric=metric))
        for name, metric in (("MAD", "mean_attention_distance"), ("entropy", "attention_entropy"))
    }
    threshold = [value for cell in _PARTS for value in minimum.get(cell, {}).values()]
    return [
        Claim(
            "modern is more local",
            "The modern protocol has a more local head than the baseline, and its early layers are nearer and more "
            "concentrated.",
            [
                Condition(
                    "minimum MAD, modern − baseline",
                    difference(runs, "modern", "baseline", minimum_mad),
                    "below",
                    0,
                    0.008 - 0.316,
                ),
                *(
                    Condition(f"mean {name} of the first third of the layers, modern − baseline", found, "below", 0)
                    for name, found in early.items()
                ),
            ],
            missing(runs, "modern", "baseline"),
        ),
        Claim(
            "CutMix separates",
            "Every cell with CutMix has a lower minimum MAD than every cell without it.",
            [Condition("smallest minimum MAD without − largest with CutMix", gap, "above", 0, 0.210 - 0.024)],
            missing(runs, *_PARTS),
            f"Minimum MAD over all runs: {min(threshold):.3f} to {max(threshold):.3f}." if threshold else "",
        ),
        Claim(
            "it is the region of another class",
            "What hides a region (Cutout) or blends whole pictures (MixUp) moves minimum MAD by less than half of "
            "what CutMix does, which pastes a region of another class.",
            [
                Condition(
                    "minimum MAD, cutmix − baseline",
                    difference(runs, "cutmix", "baseline", minimum_mad),
                    "below",
                    -SAME_MAD,
                    0.024 - 0.316,
                ),
                *(
                    Condition(f"|{control} − baseline| − |cutmix − baseline| / 2", moved(control), "below", 0)
                    for control in ("mixup", "cutout")
                ),
            ],
            missing(runs, "cutmix", "baseline", "mixup", "cutout"),
            "Our test of the paper's explanation; it has no such controls.",
        ),
        Claim(
            "no effect of the others",
            "AutoAugment and label smoothing do not move minimum MAD, alone or together with CutMix.",
            [
                Condition(
                    f"{'effect' if len(parts) == 1 else 'interaction'} of {' and '.join(sorted(parts))}",
                    effect(runs, frozenset(parts), minimum_mad),
                    "within",
                    SAME_MAD,
                )
                for parts in (
                    {"autoaugment"},
                    {"label_smoothing"},
                    {"autoaugment", "cutmix"},
                    {"label_smoothing", "cutmix"},
                )
            ],
            missing(runs, *_PARTS),
        ),
        Claim(
            "both raise accuracy",
            "AutoAugment alone and CutMix alone are each more accurate than the baseline.",
            [
                Condition(
                    f"accuracy, {cell} − baseline", difference(runs, cell, "baseline", _accuracy), "above", 0, 0.065
                )
                for cell in ("autoaugment", "cutmix")
            ],
            missing(runs, "autoaugment", "cutmix", "baseline"),
        ),
        Claim(
            "local first, global later",
            "Under the modern protocol early layers are low in distance and entropy, deep ones high.",
            [
                Condition(f"mean {name}, last third − first third of the layers", found, "above", 0)
                for name, found in deeper.items()
            ],
            missing(runs, "modern"),
        ),
        Claim(
            "accuracy without locality",
            "AutoAugment raises accuracy and leaves the most local head where it is.",
            [
                Condition(
                    "accuracy, autoaugment − baseline",
                    difference(runs, "autoaugment", "baseline", _accuracy),
                    "above",
                    0,
                    0.065,
                ),
                Condition(
                    "minimum MAD, autoaugment − baseline",
                    difference(runs, "autoaugment", "baseline", minimum_mad),
                    "within",
                    SAME_MAD,
                ),
            ],
            missing(runs, "autoaugment", "baseline"),
        ),
    ]

"""What paper A claims, as statements that result files decide. No torch."""

import math
from collections.abc import Sequence

import numpy as np

from hf_vitgeo.reporting.grids import Run, Runs, layers_of, rpi_of_last_layer, value_of
from hf_vitgeo.reporting.paper_numbers import PAPER_A_ALPHA, PAPER_A_PLAIN, PAPER_A_RPI, paper_a
from hf_vitgeo.reporting.records import BLUR, JPEG, last_layer
from hf_vitgeo.reproduction.quantities import Of, by_seed, difference, missing
from hf_vitgeo.reproduction.statistics import Claim, Condition

#: SSDT below which structure has collapsed, and from which it is tied to the index: the project's rule (see
#: `reporting.verdicts`).
COLLAPSED, ANCHORED = 0.05, 0.08
#: Two fragilities are alike within this; those of paper A's alike conditions differ by .02 at most.
SAME_FRAGILITY = 0.05


def _jpeg(run: Run) -> float:
    return value_of(run, "fragility", shift=JPEG)


def _blur(run: Run) -> float:
    return value_of(run, "fragility", shift=BLUR)


def _plain_last(run: Run) -> float:
    return value_of(run, "ssdt", layer=last_layer(run.records))


def _largest_under_rpi(run: Run) -> float:
    found = np.abs(layers_of(run, "ssdt", intervention="rpi"))
    return float(found.max()) if len(found) else math.nan


def _early_share(run: Run) -> float:
    """SSDT under RPI after the first block, as a share of its largest value; not-a-number where nothing recovers."""
    found = layers_of(run, "ssdt", intervention="rpi")
    recovers = len(found) > 1 and found.max() >= ANCHORED
    return float(found[1] / found.max()) if recovers else math.nan


def _at_alpha(metric: str, alpha: float) -> Of:
    more = {"intervention": "rpi"} if metric == "delta_ssdt" else {"shift": JPEG}
    return lambda run: value_of(run, metric, position_scale=alpha, **more)


def _share(curve: Sequence[float]) -> float:
    return curve[1] / max(curve)


def claims_of_paper_a(runs: Runs) -> list[Claim]:
    """Judge the claims of paper A.

    Args:
        runs: of a grid, by cell and seed.

    Returns:
        The claims, in the order of the paper.
    """
    codes = ("learned", "sinusoidal", "rope")
    fragile = {name: {cell: paper_a(cell, name) for cell in (*codes, "none", "learned_rpt")} for name in (JPEG, BLUR)}

    def order(low: str, high: str, shift: str) -> Condition:
        known = fragile[shift]
        of = _jpeg if shift == JPEG else _blur
        said = f"{'JPEG' if shift == JPEG else 'blur'} fragility, {high} − {low}"
        paper = (known[high] or 0) - (known[low] or 0)
        return Condition(said, difference(runs, high, low, of), "above", 0, paper)

    return [
        Claim(
            "structure without an encoding",
            "Near patches have alike tokens in the last layer also where nothing says where they are, trained or not.",
            [
                Condition(
                    f"SSDT of the last layer, {cell}",
                    by_seed(runs, cell, _plain_last),
                    "above",
                    ANCHORED,
                    PAPER_A_PLAIN[cell][-1],
                )
                for cell in ("untrained", "none", "learned")
            ],
            missing(runs, "untrained", "none", "learned"),
        ),
        Claim(
            "none collapses",
            "Without an encoding nothing is left under RPI, at any layer.",
            [
                Condition(
                    "largest |SSDT| under RPI, none", by_seed(runs, "none", _largest_under_rpi), "below", COLLAPSED
                )
            ],
            missing(runs, "none"),
        ),
        Claim(
            "encodings recover",
            "Learned, sinusoidal and rotary positions give back spatial structure to shuffled patches.",
            [
                Condition(
                    f"SSDT of the last layer under RPI, {cell}",
                    by_seed(runs, cell, rpi_of_last_layer),
                    "above",
                    ANCHORED,
                    PAPER_A_RPI[cell][-1],
                )
                for cell in codes
            ],
            missing(runs, *codes),
        ),
        Claim(
            "early or gradual",
            "Added positions (learned, sinusoidal) restore structure in the first block, RoPE with depth.",
            [
                Condition(
                    f"SSDT under RPI after the first block / its largest, {cell}",
                    by_seed(runs, cell, _early_share),
                    "below" if cell == "rope" else "above",
                    0.5,
                    _share(PAPER_A_RPI[cell]),
                )
                for cell in codes
            ],
            missing(runs, *codes),
        ),
        Claim(
            "RPT is like none",
            "Tokens shuffled in training (RPT) leave a table without effect: it collapses, and is as fragile to JPEG.",
            [
                Condition(
                    "largest |SSDT| under RPI, learned_rpt",
                    by_seed(runs, "learned_rpt", _largest_under_rpi),
                    "below",
                    COLLAPSED,
                ),
                Condition(
                    "JPEG fragility, learned_rpt − none",
                    difference(runs, "learned_rpt", "none", _jpeg),
                    "within",
                    SAME_FRAGILITY,
                    (fragile[JPEG]["learned_rpt"] or 0) - (fragile[JPEG]["none"] or 0),
                ),
            ],
            missing(runs, "learned_rpt", "none"),
        ),
        Claim(
            "order of JPEG fragility",
            "RoPE is least fragile, then learned and sinusoidal alike, then RPT and none.",
            [
                order("rope", "learned", JPEG),
                order("rope", "sinusoidal", JPEG),
                order("learned", "none", JPEG),
                order("sinusoidal", "none", JPEG),
                order("learned", "learned_rpt", JPEG),
            ],
            missing(runs, *codes, "none", "learned_rpt"),
            "Accuracies must be looked at beside it: a model near chance has little to lose.",
        ),
        Claim(
            "order of blur fragility",
            "RoPE is least fragile, then learned, sinusoidal, RPT, none.",
            [
                order("rope", "learned", BLUR),
                order("learned", "sinusoidal", BLUR),
                order("sinusoidal", "learned_rpt", BLUR),
                order("learned_rpt", "none", BLUR),
            ],
            missing(runs, *codes, "none", "learned_rpt"),
        ),
        _alpha(runs),
        _correlation(runs),
    ]


def _alpha(runs: Runs) -> Claim:
    gain, fragility = PAPER_A_ALPHA["learned"], {a: f for a, (_, f) in PAPER_A_ALPHA["learned"].items()}

    def of(metric: str, alpha: float) -> dict[int, float]:
        return by_seed(runs, "learned", _at_alpha(metric, alpha))

    def fall(metric: str, high: float, low: float) -> dict[int, float]:
        one, other = of(metric, high), of(metric, low)
        return {seed: one[seed] - other[seed] for seed in one}

    return Claim(
        "three regimes of alpha",
        "A learned table scaled down keeps its effect at first, loses it between .8 and .5, and has none from .4 on; "
        "fragility grows meanwhile.",
        [
            Condition("ΔSSDT at α 1", of("delta_ssdt", 1.0), "above", ANCHORED, gain[1.0][0]),
            Condition(
                "ΔSSDT at α 1 − at α .5",
                fall("delta_ssdt", 1.0, 0.5),
                "above",
                COLLAPSED,
                gain[1.0][0] - gain[0.5][0],
            ),
            Condition("ΔSSDT at α .4", of("delta_ssdt", 0.4), "within", COLLAPSED, gain[0.4][0]),
            Condition(
                "JPEG fragility at α .4 − at α 1",
                fall("fragility", 0.4, 1.0),
                "above",
                0,
                fragility[0.4] - fragility[1.0],
            ),
        ],
        missing(runs, "learned"),
        "Clean accuracy falls with alpha too (by 27 points in the paper), so that fragility is partly that.",
    )


def _correlation(runs: Runs) -> Claim:
    from scipy.stats import spearmanr

    trained = [cell for cell in runs if cell != "untrained"]

    def of(points: Sequence[tuple[float, float]]) -> float:
        kept = [point for point in points if all(map(math.isfinite, point))]
        return float(spearmanr(*zip(*kept, strict=True)).statistic) if len(kept) > 2 else math.nan

    seeds = sorted({seed for cell in trained for seed in runs[cell]})
    conditions = {
        seed: of([(rpi_of_last_layer(run), _jpeg(run)) for cell in trained if (run := runs[cell].get(seed))])
        for seed in seeds
    }
    alphas = sorted(PAPER_A_ALPHA["learned"])
    swept = {
        seed: of([(_at_alpha("delta_ssdt", a)(run), _at_alpha("fragility", a)(run)) for a in alphas])
        for seed, run in runs.get("learned", {}).items()
    }
    printed = PAPER_A_ALPHA["learned"]
    return Claim(
        "structure goes with robustness",
        "The more of spatial structure is tied to the index, the less fragile a model is under JPEG.",
        [
            Condition("rank correlation of SSDT under RPI with JPEG fragility, over cells", conditions, "below", 0),
            Condition(
                "rank correlation of ΔSSDT with JPEG fragility, over α (learned)",
                swept,
                "below",
                0,
                of([printed[a] for a in alphas]),
            ),
        ],
        missing(runs, "learned", "none", "rope", "sinusoidal", "learned_rpt"),
    )

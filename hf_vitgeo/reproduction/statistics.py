"""Intervals over seeds, and what they say of a claim."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

SUPPORTED: Literal["supported"] = "supported"
NOT_SUPPORTED: Literal["not supported"] = "not supported"
UNDECIDED: Literal["undecided at this scale"] = "undecided at this scale"
Verdict = Literal["supported", "not supported", "undecided at this scale"]

#: Seeds below which nothing is decided: with two, a t interval is thirteen times as wide as their difference.
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Condition:
    """A number that a claim is about, one value a seed, and where the claim puts it.

    Attributes:
        what: what the number is.
        by_seed: its value for each seed; differences are taken within a seed.
        relation: "above" or "below" the bound, or "within": its size is below the bound.
        bound: of the relation.
        paper: what the paper's own numbers give for it, or None where that is unknown.
    """

    what: str
    by_seed: Mapping[int, float]
    relation: Literal["above", "below", "within"]
    bound: float
    paper: float | None = None

    @property
    def mean(self) -> float:
        """Over the seeds; not-a-number without any."""
        found = self._values()
        return float(found.mean()) if len(found) else math.nan

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % t interval of the mean over seeds; None for fewer than two."""
        return t_interval(self._values())

    @property
    def seeds(self) -> int:
        """How many seeds have a value."""
        return len(self._values())

    def _values(self) -> np.ndarray:
        found = np.array(list(self.by_seed.values()), dtype=float)
        return found[np.isfinite(found)]

    @property
    def verdict(self) -> Verdict:
        """What the interval says: supported where all of it is where the claim puts it, not where none of it is."""
        if self.interval is None or self.seeds < FEWEST_SEEDS:
            return UNDECIDED
        low, high = self.interval
        if self.relation == "within":
            inside, outside = -self.bound < low and high < self.bound, low > self.bound or high < -self.bound
        else:
            above, below = low > self.bound, high < self.bound
            inside, outside = (above, below) if self.relation == "above" else (below, above)
        return SUPPORTED if inside else NOT_SUPPORTED if outside else UNDECIDED


@dataclass(frozen=True)
class Claim:
    """A statement of a paper and what our runs say of it.

    Attributes:
        name: short and fixed.
        statement: what the paper says, in our words.
        conditions: all of them must hold.
        missing: cells without a run that it needs.
        note: what else a reader has to know.
    """

    name: str
    statement: str
    conditions: Sequence[Condition]
    missing: Sequence[str] = ()
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """Supported where every condition is, not supported where one is refuted; otherwise undecided."""
        verdicts = [condition.verdict for condition in self.conditions]
        if self.missing or not verdicts:
            return UNDECIDED
        if NOT_SUPPORTED in verdicts:
            return NOT_SUPPORTED
        return SUPPORTED if set(verdicts) == {SUPPORTED} else UNDECIDED

    @property
    def reason(self) -> str:
        """Why it is undecided, or which condition is refuted; empty where it is supported."""
        if self.missing:
            return f"no run of {', '.join(self.missing)}"
        few = min((condition.seeds for condition in self.conditions), default=0)
        if self.verdict == UNDECIDED and few < FEWEST_SEEDS:
            return f"{few} of the {FEWEST_SEEDS} seeds that a verdict needs"
        open_ones = [condition.what for condition in self.conditions if condition.verdict == self.verdict]
        return "" if self.verdict == SUPPORTED else "; ".join(open_ones)


def t_interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """Student's t interval of a mean.

    Args:
        values: (n,) one a seed.
        level: of confidence.

    Returns:
        Its ends; None for fewer than two values.
    """
    from scipy.stats import t

    if len(values) < 2:
        return None
    half = t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)

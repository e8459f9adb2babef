"""What a model's numbers say: whether its spatial structure is tied to the position index, and if the demo holds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hf_vitgeo.reporting.records import Record, RecordsByModel, condition, first, last_layer, spread_of

ANCHORED: Literal["index-anchored"] = "index-anchored"
NOT_ANCHORED: Literal["not index-anchored"] = "not index-anchored"
UNDECIDED: Literal["undecided"] = "undecided"
Label = Literal["index-anchored", "not index-anchored", "undecided"]

#: The conditions of the demo, and what paper A makes one expect of each.
DEMO_ANCHORED = ("learned", "rope")
DEMO_COLLAPSED = ("none", "learned+rpt")


@dataclass(frozen=True)
class Verdict:
    """What SSDT under random patch intervention (RPI) at the last layer says of one model.

    Attributes:
        model: the name shown.
        label: "index-anchored", "not index-anchored" or "undecided".
        ssdt_rpi: mean over the permutations.
        sd: standard deviation over the permutations.
        standard_error: of the mean.
        null_low: lower end of the 95 % band of that mean where position and similarity are unrelated.
        null_high: upper end of it.
        null_sd: standard deviation of the null.
        text: one line for a reader.
    """

    model: str
    label: Label
    ssdt_rpi: float | None
    sd: float | None
    standard_error: float | None
    null_low: float | None
    null_high: float | None
    null_sd: float | None
    text: str


class Check(NamedTuple):
    """One claim of the demo, whether it holds, and the numbers behind it."""

    claim: str
    holds: bool
    detail: str


def short(value: float | None, digits: int = 2) -> str:
    """Write a number as the papers do, without the zero before the point: .21, -.05, 1.00; "–" for None."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    if not text.strip("-0."):
        text = text.removeprefix("-")  # a rounded -0.00 is no negative number
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def verdict(records: Sequence[Record], name: str | None = None) -> Verdict:
    """Say whether a model's spatial structure is anchored to the position index.

    The rule of this project, for the mean of SSDT over the permutations of RPI at the last layer (the raw output of
    the last block): *index-anchored* when the mean is at least .08 and above 4 standard errors; *not index-anchored*
    (collapsed) when its size is below .05 or below 3 standard errors, whichever is larger; otherwise *undecided*.
    The second bound grows with the standard error because on a small grid one permutation alone moves SSDT by .05.

    Args:
        records: the records of one model.
        name: the name to show; the condition's where it is not given.

    Returns:
        The verdict. It is "undecided", and the text says why, where SSDT under RPI or its standard error is missing.
    """
    name = name or condition(records)
    layer = last_layer(records, "rpi")
    measured = first(records, "ssdt", intervention="rpi", layer=layer)
    null = first(records, "ssdt", intervention="rpi_null", layer=layer)
    mean = measured["value"] if measured else None
    sd, error = spread_of(measured, "sd"), spread_of(measured, "standard_error")
    low, high = spread_of(null, "low"), spread_of(null, "high")
    label = _label(mean, error)
    if measured is None:
        said = "SSDT under RPI was not measured"
    elif mean is None:
        said = f"SSDT under RPI has no value ({measured.get('reason') or 'no reason recorded'})"
    else:
        band = "null band not recorded" if low is None or high is None else f"null ± {short((high - low) / 2)}"
        around = f" ± {short(sd)}" if sd is not None else ""
        said = f"SSDT under RPI {short(mean)}{around} ({band})"
        if error is None:
            said += "; no standard error, too few permutations"
    return Verdict(name, label, mean, sd, error, low, high, spread_of(null, "sd"), f"{name}: {label}, {said}")


def _label(mean: float | None, error: float | None) -> Label:
    if mean is None or error is None or not math.isfinite(mean) or not math.isfinite(error):
        return UNDECIDED
    if mean >= 0.08 and mean > 4 * error:
        return ANCHORED
    return NOT_ANCHORED if abs(mean) < max(0.05, 3 * error) else UNDECIDED


def is_demo(records_by_model: RecordsByModel) -> bool:
    """Whether the four conditions of the demo are all there, so that its checks say something."""
    return {*DEMO_ANCHORED, *DEMO_COLLAPSED} <= {condition(records) for records in records_by_model.values()}


def demo_checks(records_by_model: RecordsByModel, chance: float) -> list[Check]:
    """Check what the demo claims to show. With several seeds, each has to show it.

    Args:
        records_by_model: the records of each model, by label.
        chance: the accuracy of guessing, one over the number of classes.

    Returns:
        Three checks: every model learned something; learned positions and RoPE anchor spatial structure to the index;
        no positions, and positions trained on shuffled patches (RPT), do not. A model that is missing fails its check.
    """
    accuracies = {
        label: (first(records, "accuracy") or {}).get("value") for label, records in records_by_model.items()
    }
    learned = all(value is not None and value > 3 * chance for value in accuracies.values())
    numbers = ", ".join(f"{label} {short(value, 3)}" for label, value in accuracies.items())
    return [
        Check(
            "every model is above 3 times chance on clean images",
            bool(accuracies) and learned,
            f"3 times chance is {short(3 * chance, 3)}; {numbers}",
        ),
        _check("learned and rope are index-anchored", records_by_model, DEMO_ANCHORED, ANCHORED),
        _check("none and learned+rpt have collapsed", records_by_model, DEMO_COLLAPSED, NOT_ANCHORED),
    ]


def _check(claim: str, records_by_model: RecordsByModel, conditions: Sequence[str], expected: Label) -> Check:
    found = [
        (condition(records), verdict(records, label))
        for label, records in records_by_model.items()
        if condition(records) in conditions
    ]
    present = {name for name, _ in found}
    missing = [f"{name}: no records" for name in conditions if name not in present]
    holds = not missing and all(each.label == expected for _, each in found)
    return Check(claim, holds, "; ".join([each.text for _, each in found] + missing))

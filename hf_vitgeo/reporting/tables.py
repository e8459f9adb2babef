"""Tables: what was measured of each model, and paper A's numbers beside ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from hf_vitgeo.reporting.records import (
    BLUR,
    JPEG,
    ArgsByModel,
    Record,
    RecordsByModel,
    condition,
    first,
    last_layer,
    select,
    spread_of,
)
from hf_vitgeo.reporting.verdicts import short, verdict

Row = dict[str, str]

#: Where the numbers of `PAPER_A` come from, for a reader.
PAPER_A_SCALE = "ViT-S/16, ImageNet-100, 60 epochs, 4 seeds"
#: Paper A: accuracy and fragility from its appendix D; SSDT (it prints SSDC) of layer 11 under RPI read off the curves
#: of its figure 2, so to two digits. "learned+rpt" under RPI is its appendix figure C.2.
PAPER_A: dict[str, dict[str, float]] = {
    "learned": {"accuracy": 0.6406, JPEG: 0.4347, BLUR: 0.1842, "ssdt_rpi": 0.40},
    "sinusoidal": {"accuracy": 0.6568, JPEG: 0.4351, BLUR: 0.2082, "ssdt_rpi": 0.46},
    "rope": {"accuracy": 0.6901, JPEG: 0.2988, BLUR: 0.1474, "ssdt_rpi": 0.32},
    "none": {"accuracy": 0.5682, JPEG: 0.6458, BLUR: 0.2984, "ssdt_rpi": 0.01},
    "learned+rpt": {"accuracy": 0.5595, JPEG: 0.6297, BLUR: 0.2427, "ssdt_rpi": 0.00},
}


def summary_table(records_by_model: RecordsByModel, args_by_model: ArgsByModel) -> list[Row]:
    """One row a model with its most telling numbers.

    Args:
        records_by_model: the records of each model, by label.
        args_by_model: the arguments of each, for the number of parameters.

    Returns:
        Rows of ready text; a dash stands for what was not measured.
    """
    rows = []
    for label, records in records_by_model.items():
        found = verdict(records, label)
        rows.append(
            {
                "model": label,
                "parameters": _count(args_by_model.get(label, {}).get("parameters")),
                "accuracy": with_interval(first(records, "accuracy")),
                "SSDT": short(_value(first(records, "ssdt", layer=last_layer(records)))),
                "SSDT, RPI": _plus_minus(found.ssdt_rpi, found.sd),
                "null band": _range(found.null_low, found.null_high),
                "verdict": found.label,
                "min MAD": short(minimum_distance(records), 3),
                "JPEG fragility": with_interval(first(records, "fragility", shift=JPEG)),
                "blur fragility": with_interval(first(records, "fragility", shift=BLUR)),
            }
        )
    return rows


def paper_comparison(records_by_model: RecordsByModel) -> list[Row]:
    """Our numbers beside those that paper A prints for the same condition, which come from another scale.

    Args:
        records_by_model: the records of each model, by label.

    Returns:
        One row for each model whose condition paper A has.
    """
    rows = []
    for label, records in records_by_model.items():
        paper = PAPER_A.get(condition(records))
        if paper is None:
            continue
        ours = {
            "accuracy": _value(first(records, "accuracy")),
            "ssdt_rpi": verdict(records).ssdt_rpi,
            JPEG: _value(first(records, "fragility", shift=JPEG)),
            BLUR: _value(first(records, "fragility", shift=BLUR)),
        }
        names = {
            "accuracy": "accuracy",
            "ssdt_rpi": "SSDT, RPI, last layer",
            JPEG: "JPEG fragility",
            BLUR: "blur fragility",
        }
        row = {"model": label}
        for key, name in names.items():
            row[name] = short(ours[key])
            row[f"{name} (paper)"] = short(paper[key])
        rows.append(row)
    return rows


def probe_table(records_by_model: RecordsByModel) -> list[Row]:
    """Probes of each frozen backbone, and of what they have to beat.

    Args:
        records_by_model: the records of each model, by label.

    Returns:
        One row for each model that was probed: the best k-NN and the linear probe, of the backbone, of random weights
        and of raw pixels.
    """
    rows = []
    for label, records in records_by_model.items():
        row = {"model": label}
        for metric, name in (("knn_accuracy", "k-NN"), ("linear_accuracy", "linear")):
            for control in (None, "random_weights", "raw_pixels"):
                found = [each for each in select(records, metric, intervention=control) if each["value"] is not None]
                best = max(found, key=lambda each: each["value"], default=None)
                row[f"{name}, {control.replace('_', ' ')}" if control else name] = with_interval(best)
        if any(cell != "–" for name, cell in row.items() if name != "model"):
            rows.append(row)
    return rows


def minimum_distance(records: Sequence[Record]) -> float | None:
    """Minimum MAD, the smallest mean attention distance of any head (paper B); None where none was measured."""
    values = [row["value"] for row in select(records, "mean_attention_distance") if row["value"] is not None]
    return min(values, default=None)


def to_markdown(rows: Sequence[Row]) -> str:
    """A Markdown table; an empty text for no rows."""
    if not rows:
        return ""
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *([row[name] for name in head] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def to_text(rows: Sequence[Row], width: int = 100) -> str:
    """A table for a terminal: columns that would pass the width go into a second block, with the model's name again.

    Args:
        rows: rows with the same columns, the first of which names the row.
        width: characters a line.

    Returns:
        Aligned lines; an empty text for no rows.
    """
    if not rows:
        return ""
    names = list(rows[0])
    sizes = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    blocks: list[list[str]] = [[names[0]]]
    for name in names[1:]:
        if sum(sizes[each] + 2 for each in blocks[-1]) + sizes[name] > width:
            blocks.append([names[0]])
        blocks[-1].append(name)
    return "\n\n".join(_block(rows, block, sizes) for block in blocks)


def _block(rows: Sequence[Row], names: Sequence[str], sizes: Mapping[str, int]) -> str:
    lines = [{name: name for name in names}, *rows]
    return "\n".join("  ".join(line[name].ljust(sizes[name]) for name in names).rstrip() for line in lines)


def _value(record: Record | None) -> float | None:
    return record["value"] if record else None


def _count(parameters: Any) -> str:
    return "not recorded" if parameters is None else f"{parameters:,}"


def _range(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{short(low)} to {short(high)}"


def _plus_minus(value: float | None, sd: float | None) -> str:
    return short(value) if sd is None else f"{short(value)} ± {short(sd)}"


def with_interval(record: Record | None) -> str:
    """A record's value with the ends of its interval in brackets; a dash where there is none."""
    value, low, high = _value(record), spread_of(record, "low"), spread_of(record, "high")
    if value is None or low is None or high is None:
        return short(value)
    return f"{short(value)} [{short(low)}, {short(high)}]"

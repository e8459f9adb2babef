"""How a run got there: accuracy, the most local head, and index-tied structure against the optimiser step."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_vitgeo.reporting.plots import NothingMeasured
from hf_vitgeo.reporting.records import Record, last_layer, select, spread_of
from hf_vitgeo.reporting.styles import GREY, legend, styles_of
from hf_vitgeo.runs import RunDir


def min_mad_by_step(records: Sequence[Record]) -> dict[int, float]:
    """Paper B's minimum mean attention distance over all heads, at each step that was measured.

    Args:
        records: of one model.

    Returns:
        The smallest MAD, a share of the grid's largest distance in [0, 1], by step in ascending order.
    """
    found: dict[int, list[float]] = {}
    for row in select(records, "mean_attention_distance"):
        if row["value"] is not None and row["step"] is not None:
            found.setdefault(row["step"], []).append(row["value"])
    return {step: min(found[step]) for step in sorted(found)}


def over_time(run_dirs: Sequence[Path]) -> Figure:
    """Draw what `--measure_every` recorded.

    Args:
        run_dirs: run folders; those that were measured at one step alone are left out.

    Returns:
        Three panels against the optimiser step: accuracy of the evaluation split, minimum MAD, and SSDT under RPI of
        the last layer with one s.d. over permutations.

    Raises:
        NothingMeasured: if no run was measured at several steps.
    """
    runs = {path: RunDir(path) for path in map(Path, run_dirs)}
    records = {path: one_sample(run.results()) for path, run in runs.items()}
    measured = {path: min_mad_by_step(rows) for path, rows in records.items()}
    # a pre-training has no accuracy, and a figure of its own
    evaluated = {path for path, run in runs.items() if any("accuracy" in event for event in run.events())}
    measured = {path: steps for path, steps in measured.items() if len(steps) > 1 and path in evaluated}
    if not measured:
        raise NothingMeasured("no run was measured at several steps (--measure_every): nothing to draw")
    names = {path: str(runs[path].args().get("model", path.name)) for path in measured}
    as_records = {str(path): [{"model": names[path]}] for path in measured}
    styles = styles_of(as_records)
    fig = Figure(figsize=(10, 4.0), layout="constrained")
    accuracy, distance, structure = fig.subplots(1, 3)
    for path, minimum in measured.items():
        style = styles[names[path]]
        look = {"color": style.color, "marker": style.marker, "ls": style.linestyle, "ms": 4, "lw": 1.6}
        events = [event for event in runs[path].events() if event.get("accuracy") is not None]
        accuracy.plot([event["step"] for event in events], [event["accuracy"] for event in events], **look)
        distance.plot(list(minimum), list(minimum.values()), **look)
        _draw_structure(structure, records[path], look)
    accuracy.set(title="Accuracy", ylabel="top-1 accuracy (share of images)")
    distance.set(title="The most local head", ylabel="minimum MAD (share of largest)")
    structure.set(title="Structure tied to the index", ylabel="SSDT under RPI, last layer")
    structure.axhline(0, color=GREY, lw=0.8)
    for ax in (accuracy, distance):
        ax.set_ylim(bottom=0)
    for ax in (accuracy, distance, structure):
        ax.set_xlabel("optimiser step")
        ax.grid(alpha=0.3)
    legend(fig, as_records, styles=styles)
    return fig


def one_sample(records: Sequence[Record]) -> list[Record]:
    """The records of the sample that was measured at most steps: another one belongs on no common line.

    Args:
        records: of one run.

    Returns:
        Some of them.
    """
    steps: dict[tuple, set] = {}
    for row in records:
        steps.setdefault(_sample(row), set()).add(row["step"])
    chosen = max(steps, key=lambda sample: len(steps[sample]), default=None)
    return [row for row in records if _sample(row) == chosen]


def _sample(record: Record) -> tuple:
    return tuple(record.get(field) for field in ("dataset", "split", "sample_hash"))


def _draw_structure(ax: Axes, records: Sequence[Record], look: dict) -> None:
    found = select(records, "ssdt", intervention="rpi", layer=last_layer(records, "rpi"), step=...)
    found = sorted(found, key=lambda row: row["step"])
    steps, values = [row["step"] for row in found], [row["value"] for row in found]
    ax.plot(steps, values, **look)
    around = [
        (row["step"], row["value"], sd)
        for row in found
        if row["value"] is not None and (sd := spread_of(row, "sd")) is not None
    ]
    if around:
        places, middle, width = zip(*around, strict=True)
        low, high = ([m + sign * w for m, w in zip(middle, width, strict=True)] for sign in (-1, 1))
        ax.fill_between(places, low, high, color=look["color"], alpha=0.2, lw=0)

"""How a pre-training went (paper C): the teacher's entropy, what k-NN finds in its features, and its geometry."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from hf_vitgeo.reporting.over_time import min_mad_by_step, one_sample
from hf_vitgeo.reporting.plots import NothingMeasured
from hf_vitgeo.reporting.records import Record, last_layer, select, spread_of
from hf_vitgeo.reporting.styles import GREY, legend, styles_of
from hf_vitgeo.runs import RunDir

ByStep = dict[int, float]
#: Title and axis of each panel.
_PANELS = (
    ("The teacher is sure", "teacher's entropy (share of ln K)"),
    ("The student is behind", "KL, student from teacher (nats)"),
    ("Classes in the features", "k-NN accuracy (share of images)"),
    ("Structure tied to the index", "SSDT under RPI, last layer"),
    ("The most local head", "minimum MAD (share of largest)"),
    ("Keys with any weight", "attention support (share of keys)"),
)


def is_pretraining(run: RunDir) -> bool:
    """Whether a run's log has a teacher in it."""
    return any("teacher_entropy" in event for event in run.events())


def pretraining(run_dirs: Sequence[Path]) -> Figure:
    """Draw the log of DINO runs and what `--measure_every` recorded.

    Args:
        run_dirs: run folders; those without a teacher are left out.

    Returns:
        Six panels against the optimiser step: entropy of the teacher as a share of its largest value, ln K; KL of the
        student from it; accuracy of k-NN with its 95 % interval over pictures; SSDT under RPI of the last layer;
        minimum MAD; attention support, the mean over heads.

    Raises:
        NothingMeasured: if there is no such run.
    """
    runs = {path: run for path in map(Path, run_dirs) if is_pretraining(run := RunDir(path))}
    if not runs:
        raise NothingMeasured("no run has a teacher: nothing to draw")
    names = {path: str(run.args().get("model", path.name)) for path, run in runs.items()}
    as_records = {str(path): [{"model": name}] for path, name in names.items()}
    styles = styles_of(as_records)
    fig = Figure(figsize=(11, 6.4), layout="constrained")
    axes = fig.subplots(2, 3)
    for path, run in runs.items():
        style, records = styles[names[path]], run.results()
        look = {"color": style.color, "marker": style.marker, "ls": style.linestyle, "ms": 4, "lw": 1.6}
        drawn: list[ByStep] = [
            _logged(run, lambda event, k: event["teacher_entropy"] / math.log(k)),
            _logged(run, lambda event, k: event["kl"]),
            _knn(records),
            _last_rpi(one_sample(records)),
            min_mad_by_step(one_sample(records)),
            _mean_support(one_sample(records)),
        ]
        for ax, curve in zip(axes.flat, drawn, strict=True):
            ax.plot(list(curve), list(curve.values()), **look)
        low, high = (_knn(records, end) for end in ("low", "high"))
        axes.flat[2].fill_between(
            list(low), list(low.values()), list(high.values()), color=style.color, alpha=0.15, lw=0
        )
    for ax, (title, label) in zip(axes.flat, _PANELS, strict=True):
        ax.set(title=title, ylabel=label, xlabel="optimiser step")
        ax.grid(alpha=0.3)
    axes.flat[0].axhline(1, color=GREY, lw=0.8, ls="--")
    axes.flat[3].axhline(0, color=GREY, lw=0.8)
    legend(fig, as_records, styles=styles)
    return fig


def _logged(run: RunDir, value: Callable[[dict, int], float]) -> ByStep:
    """A number of each epoch, at its last step."""
    outputs = run.args()["out_dim"]
    return {event["step"]: value(event, outputs) for event in run.events() if "teacher_entropy" in event}


def _knn(records: Sequence[Record], end: str | None = None) -> ByStep:
    """Accuracy by step, or an end of its interval; a later probe with other pictures is no part of the course."""
    found = select(records, "knn_accuracy")
    sizes = [row["n_images"] for row in found]
    found = [row for row in found if sizes and row["n_images"] == max(set(sizes), key=sizes.count)]
    by_step = {row["step"]: row["value"] if end is None else spread_of(row, end) for row in found}
    return {step: value for step, value in sorted(by_step.items()) if value is not None}


def _last_rpi(records: Sequence[Record]) -> ByStep:
    found = select(records, "ssdt", intervention="rpi", layer=last_layer(records, "rpi"))
    return dict(sorted((row["step"], row["value"]) for row in found if row["value"] is not None))


def _mean_support(records: Sequence[Record]) -> ByStep:
    found: dict[int, list[float]] = {}
    for row in select(records, "attention_support"):
        if row["value"] is not None:
            found.setdefault(row["step"], []).append(row["value"])
    return {step: fmean(found[step]) for step in sorted(found)}

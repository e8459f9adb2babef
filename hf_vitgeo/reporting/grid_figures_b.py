"""The figures of paper B from the runs of a grid, with the paper's own numbers as hollow marks; and both over time."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hf_vitgeo.reporting.grid_figures_a import look as look_a
from hf_vitgeo.reporting.grids import (
    Run,
    Runs,
    accuracy_by_step,
    mad_by_step,
    minimum_mad,
    over_seeds,
    rpi_by_step,
    value_of,
)
from hf_vitgeo.reporting.paper_numbers import PAPER_B_MIN_MAD, SOURCE_B
from hf_vitgeo.reporting.plots import NothingMeasured, grid_size, uniform_distance
from hf_vitgeo.reporting.records import select
from hf_vitgeo.reporting.styles import GREY

# Colour says whether CutMix is in a cell, the mark which cell it is.
_BLUE, _ORANGE, _GREEN = "#0072B2", "#D55E00", "#009E73"
_LOOKS = {
    "baseline": (_BLUE, "o"),
    "autoaugment": (_BLUE, "s"),
    "label_smoothing": (_BLUE, "^"),
    "no_cutmix": (_BLUE, "D"),
    "cutmix": (_ORANGE, "o"),
    "no_autoaugment": (_ORANGE, "^"),
    "no_label_smoothing": (_ORANGE, "s"),
    "modern": (_ORANGE, "D"),
    "mixup": (_GREEN, "P"),
    "cutout": (_GREEN, "X"),
}


def look(cell: str) -> dict:
    """How a cell is drawn: dashed without CutMix, solid with it, dotted for the controls."""
    color, marker = _LOOKS[cell]
    return {
        "color": color,
        "marker": marker,
        "ls": {_BLUE: "--", _ORANGE: "-", _GREEN: ":"}[color],
        "ms": 5,
        "lw": 1.5,
    }


def mad_by_layer(runs: Runs) -> Figure:
    """MAD of every head by layer, baseline beside modern: paper B's first figure.

    Args:
        runs: of a grid.

    Returns:
        Two panels; a dot is a head of one seed, the line the mean of a layer.

    Raises:
        NothingMeasured: without these two cells.
    """
    cells = [cell for cell in ("baseline", "modern") if runs.get(cell)]
    if not cells:
        raise NothingMeasured("no run of baseline or modern")
    fig = Figure(figsize=(9, 4), layout="constrained")
    for ax, cell in zip(fig.subplots(1, 2, sharey=True), cells, strict=False):
        rows = [row for run in runs[cell].values() for row in select(run.records, "mean_attention_distance")]
        rows = [row for row in rows if row["value"] is not None]
        layers = np.array([row["layer"] for row in rows]) + 1
        values = np.array([row["value"] for row in rows])
        ax.plot(layers, values, "o", ms=4, alpha=0.5, color=look(cell)["color"])
        ax.plot(
            np.unique(layers), [values[layers == each].mean() for each in np.unique(layers)], color="black", lw=1.5
        )
        _uniform(ax, runs[cell])
        ax.set(title=f"{cell} ({len(runs[cell])} seeds)", xlabel="layer", ylim=(0, None))
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
    fig.axes[0].set_ylabel("MAD (share of the grid's largest distance)")
    return fig


def behavioural_space(runs: Runs) -> Figure:
    """MAD against entropy of every head, one panel a cell: paper B's second figure.

    Args:
        runs: of a grid.

    Returns:
        Panels with common axes, coloured by layer.

    Raises:
        NothingMeasured: without a run.
    """
    if not runs:
        raise NothingMeasured("no run")
    columns = min(4, len(runs))
    lines = -(-len(runs) // columns)
    fig = Figure(figsize=(2.4 * columns + 1.4, 2.3 * lines + 0.7), layout="constrained")
    axes = fig.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    first = next(iter(next(iter(runs.values())).values()))
    depth = 1 + max(row["layer"] for row in select(first.records, "mean_attention_distance"))
    norm = BoundaryNorm(np.arange(depth + 1) + 0.5, 256)
    for ax, (cell, seeds) in zip(axes.flat, runs.items(), strict=False):
        for run in seeds.values():
            entropy = {(row["layer"], row["head"]): row["value"] for row in select(run.records, "attention_entropy")}
            for row in select(run.records, "mean_attention_distance"):
                value = entropy.get((row["layer"], row["head"]))
                if row["value"] is not None and value is not None:
                    color = ScalarMappable(norm, "viridis").to_rgba(row["layer"] + 1)
                    ax.plot(row["value"], value, "o", color=color, ms=4.5, mec="white", mew=0.4)
        ax.set_title(cell, fontsize=9)
        ax.grid(alpha=0.3)
    for ax in axes.flat[len(runs) :]:
        ax.set_axis_off()
    fig.supxlabel("MAD (share of the grid's largest distance)", fontsize=10)
    fig.supylabel("attention entropy (share of log N)", fontsize=10)
    fig.colorbar(ScalarMappable(norm, "viridis"), ax=axes, label="layer", ticks=range(1, depth + 1, 1 + depth // 13))
    return fig


def ablation(runs: Runs) -> Figure:
    """Minimum MAD and accuracy of every cell: paper B's third figure.

    Args:
        runs: of a grid.

    Returns:
        Two panels; a small dot is a seed, the bar one s.d.; hollow marks are the paper's numbers, arrows its bounds.

    Raises:
        NothingMeasured: without a run.
    """
    if not runs:
        raise NothingMeasured("no run")
    fig = Figure(figsize=(10, 1.6 + 0.36 * len(runs)), layout="constrained")
    distance, accuracy = fig.subplots(1, 2, sharey=True)
    panels: tuple[tuple[Axes, Callable[[Run], float]], ...] = (
        (distance, minimum_mad),
        (accuracy, lambda run: value_of(run, "accuracy")),
    )
    for place, (cell, seeds) in enumerate(runs.items()):
        for ax, of in panels:
            mean, sd, _ = over_seeds(seeds, of)
            style = look(cell)
            ax.errorbar(mean, place, xerr=sd, color=style["color"], marker=style["marker"], ms=7, capsize=4)
            found = [of(run) for run in seeds.values()]
            ax.plot(found, [place + 0.25] * len(found), ".", color=style["color"], ms=5)
        least, most = PAPER_B_MIN_MAD.get(cell, (None, None))
        if least is not None and most is not None:
            distance.plot(least, place - 0.25, "o", color=GREY, mfc="white", ms=6)
        elif least is not None:
            distance.plot(least, place - 0.25, ">", color=GREY, mfc="white", ms=6)
        elif most is not None:
            distance.plot(most, place - 0.25, "<", color=GREY, mfc="white", ms=6)
    _uniform(distance, next(iter(runs.values())), vertical=True)
    distance.set_yticks(range(len(runs)), list(runs))
    distance.invert_yaxis()
    distance.set(title="The most local head", xlabel="minimum MAD (share of the largest distance)", xlim=(0, None))
    accuracy.set(title="Accuracy", xlabel="top-1 accuracy (share of images)")
    for ax in (distance, accuracy):
        ax.grid(axis="x", alpha=0.3)
    marks = [("o", "printed"), (">", "at least"), ("<", "at most")]
    handles = [Line2D([], [], color=GREY, marker=mark, mfc="white", ls="", label=said) for mark, said in marks]
    fig.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, title=SOURCE_B)
    return fig


def emergence(runs: Runs, paper: str) -> Figure:
    """Accuracy, minimum MAD and SSDT under RPI against the optimiser step, a line a cell.

    Args:
        runs: of a grid that was measured while it trained.
        paper: "A" or "B".

    Returns:
        Three panels; a line is the mean over seeds, the band one s.d.

    Raises:
        NothingMeasured: without such a measurement.
    """
    style = look if paper == "B" else look_a
    fig = Figure(figsize=(11, 4.6), layout="constrained")
    panels: tuple[tuple[Callable[[Run], Mapping[int, float]], str, str], ...] = (
        (accuracy_by_step, "Accuracy", "top-1 accuracy (share of images)"),
        (mad_by_step, "The most local head", "minimum MAD (share of the largest distance)"),
        (rpi_by_step, "Structure tied to the index", "SSDT under RPI, last layer"),
    )
    drawn = []
    for ax, (of, title, label) in zip(fig.subplots(1, 3), panels, strict=True):
        for cell, seeds in runs.items():
            found = [of(run) for run in seeds.values()]
            steps = sorted(set.intersection(*(set(each) for each in found)))
            if len(steps) < 2:
                continue
            drawn.append(cell)
            values = np.array([[each[step] for step in steps] for each in found])
            mean = values.mean(axis=0)
            ax.plot(steps, mean, **style(cell))
            if len(values) > 1:
                sd = values.std(axis=0, ddof=1)
                ax.fill_between(steps, mean - sd, mean + sd, color=style(cell)["color"], alpha=0.12, lw=0)
        ax.set(title=title, ylabel=label, xlabel="optimiser step")
        ax.grid(alpha=0.3)
    if not drawn:
        raise NothingMeasured("nothing was measured over time")
    handles = [Line2D([], [], label=cell, **style(cell)) for cell in dict.fromkeys(drawn)]
    fig.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return fig


def _uniform(ax: Axes, seeds: Mapping[int, Run], vertical: bool = False) -> None:
    """A line at the MAD of uniform attention."""
    grid = grid_size(next(iter(seeds.values())).args)
    if grid is not None:
        line = ax.axvline if vertical else ax.axhline
        line(uniform_distance(grid), color=GREY, lw=0.9, ls=":")

"""The figures of paper A from the runs of a grid, with the paper's own points as hollow marks."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from hf_vitgeo.reporting.grids import Run, Runs, layers_of, over_seeds, rpi_of_last_layer, value_of
from hf_vitgeo.reporting.paper_numbers import PAPER_A_ALPHA, PAPER_A_PLAIN, PAPER_A_RPI, depth_of, paper_a
from hf_vitgeo.reporting.plots import NothingMeasured
from hf_vitgeo.reporting.records import BLUR, JPEG, select, spread_of
from hf_vitgeo.reporting.styles import GREY, STYLES, Style

_CELL_STYLES = {
    **{name.replace("+", "_"): style for name, style in STYLES.items()},
    "untrained": Style("#666666", "h", (0, (1, 1))),  # type: ignore[arg-type]  # dense dots
    "sinusoidal_rpt": Style("#56B4E9", "P", (0, (3, 1, 1, 1))),  # type: ignore[arg-type]  # dash-dot
    "rope_rpt": Style("#E69F00", "X", (0, (5, 1))),  # type: ignore[arg-type]  # dashes
}
_ENCODINGS = ("none", "learned", "sinusoidal", "rope")
_HOLLOW = Line2D([], [], color=GREY, marker="o", mfc="white", ls="", ms=5, label="paper A (ViT-S/16, ImageNet-100)")


def look(cell: str) -> dict:
    """How a cell's line is drawn."""
    style = _CELL_STYLES[cell]
    return {"color": style.color, "marker": style.marker, "ls": style.linestyle, "ms": 5, "lw": 1.6}


def plain_figure(runs: Runs, cells: tuple[str, ...], title: str) -> Figure:
    """SSDT layer by layer of patches in their places: figures 1 and C.1.

    Args:
        runs: of a grid.
        cells: which of them.
        title: of the panel.

    Returns:
        Mean over seeds with one s.d.

    Raises:
        NothingMeasured: without a run of these cells.
    """
    fig = _one_panel(runs, cells)
    ax = fig.axes[0]
    for cell in cells:
        _draw(ax, runs, cell, None, PAPER_A_PLAIN.get(cell))
    _layers(ax, title)
    _legend(fig, runs, cells)
    return fig


def rpi_figure(runs: Runs) -> Figure:
    """SSDT under RPI: figure 2, on the left what recovers, on the right what collapses.

    Args:
        runs: of a grid.

    Returns:
        Two panels; grey is the widest 95 % null band.

    Raises:
        NothingMeasured: without a run.
    """
    left, right = ("learned", "rope", "sinusoidal"), ("none", "learned_rpt", "sinusoidal_rpt", "rope_rpt")
    _require(runs, (*left, *right))
    fig = Figure(figsize=(9.5, 4.4), layout="constrained")
    for ax, cells, title in zip(
        fig.subplots(1, 2), (left, right), ("with an encoding", "without, or RPT"), strict=True
    ):
        _null(ax, runs, cells)
        for cell in cells:
            _draw(ax, runs, cell, "rpi", PAPER_A_RPI.get(cell))
        _layers(ax, f"Patches shuffled (RPI), {title}")
    low, high = fig.axes[1].get_ylim()
    fig.axes[1].set_ylim(min(low, -0.1), max(high, 0.1))
    _legend(fig, runs, (*left, *right))
    return fig


def rpt_figure(runs: Runs) -> Figure:
    """SSDT of models trained on shuffled tokens, plain and under RPI: figure C.2.

    Args:
        runs: of a grid.

    Returns:
        One panel.

    Raises:
        NothingMeasured: without such a run.
    """
    cells = ("learned_rpt", "sinusoidal_rpt", "rope_rpt")
    fig = _one_panel(runs, cells)
    ax = fig.axes[0]
    for cell in cells:
        _draw(ax, runs, cell, None, PAPER_A_PLAIN.get(cell))
        _draw(ax, runs, cell, "rpi", None, mfc="white")
    ax.axhline(0, color=GREY, lw=0.8)
    _layers(ax, "Trained on shuffled tokens: above plain, below under RPI")
    _legend(fig, runs, cells)
    return fig


def fragility_figure(runs: Runs) -> Figure:
    """Fragility under blur and JPEG by condition, beside the clean accuracy: figure 3.

    Args:
        runs: of a grid.

    Returns:
        Three panels; a small dot is a seed, the bar one s.d. over them.

    Raises:
        NothingMeasured: without a trained run.
    """
    cells = [cell for cell in ("learned", "rope", "sinusoidal", "none", "learned_rpt") if runs.get(cell)]
    if not cells:
        raise NothingMeasured("no trained cell")
    fig = Figure(figsize=(10, 4), layout="constrained")
    panels = (("accuracy", None, "Clean accuracy"), ("fragility", BLUR, "Blur"), ("fragility", JPEG, "JPEG"))
    for ax, (metric, shift, title) in zip(fig.subplots(1, 3), panels, strict=True):
        for place, cell in enumerate(cells):
            mean, sd, _ = over_seeds(runs[cell], partial(_value, metric=metric, shift=shift))
            found = [_value(run, metric, shift) for run in runs[cell].values()]
            style = _CELL_STYLES[cell]
            ax.errorbar(place, mean, yerr=sd, color=style.color, marker=style.marker, ms=7, capsize=4)
            ax.plot([place + 0.18] * len(found), found, ".", color=style.color, ms=5)
            printed = paper_a(cell, shift or "accuracy")
            ax.plot(place - 0.2, np.nan if printed is None else printed, "o", color=GREY, mfc="white", ms=6)
        ax.set_xticks(range(len(cells)), [cell.replace("_", "\n+") for cell in cells], fontsize=8)
        ax.set_title(title)
        ax.set_ylabel("top-1 accuracy (share)" if shift is None else "fragility (share of accuracy lost)")
        ax.grid(axis="y", alpha=0.3)
        ax.axhline(0, color=GREY, lw=0.8)
    fig.legend(handles=[_HOLLOW], loc="outside lower center", frameon=False)
    return fig


def alpha_figure(runs: Runs) -> Figure:
    """The sweep of alpha: table 1 and appendix B, with the accuracy beside it.

    Args:
        runs: of a grid.

    Returns:
        Three panels: gain of SSDT in the first block under RPI, JPEG fragility, accuracy.

    Raises:
        NothingMeasured: without a sweep.
    """
    cells = [cell for cell in ("learned", "sinusoidal") if runs.get(cell)]
    panels: tuple[tuple[str, dict[str, str], str, str], ...] = (
        ("delta_ssdt", {"intervention": "rpi"}, "Gain in the first block, under RPI", "ΔSSDT (layer 1 − layer 0)"),
        ("fragility", {"shift": JPEG}, "JPEG fragility", "share of accuracy lost"),
        ("accuracy", {}, "Clean accuracy", "top-1 accuracy (share)"),
    )
    fig = Figure(figsize=(10.5, 4.2), layout="constrained")
    drawn = False
    for number, (ax, (metric, fields, title, label)) in enumerate(zip(fig.subplots(1, 3), panels, strict=True)):
        for cell in cells:
            rows = [select(run.records, metric, position_scale=..., **fields) for run in runs[cell].values()]
            alphas = [row["position_scale"] for row in rows[0]]
            if not alphas:
                continue
            drawn = True
            found = np.array([[np.nan if row["value"] is None else row["value"] for row in each] for each in rows])
            mean = found.mean(axis=0)
            ax.plot(alphas, mean, **look(cell))
            if len(found) > 1:
                sd = found.std(axis=0, ddof=1)
                ax.fill_between(alphas, mean - sd, mean + sd, color=look(cell)["color"], alpha=0.2, lw=0)
            if number < 2:
                printed = PAPER_A_ALPHA[cell]
                ax.plot(
                    list(printed),
                    [both[number] for both in printed.values()],
                    ls="",
                    marker=look(cell)["marker"],
                    color=look(cell)["color"],
                    mfc="white",
                    ms=5,
                )
        ax.set(title=title, ylabel=label, xlabel="α (1: position codes as trained)")
        ax.axhline(0, color=GREY, lw=0.8)
        ax.grid(alpha=0.3)
    if not drawn:
        raise NothingMeasured("no sweep of alpha")
    _legend(fig, runs, tuple(cells))
    return fig


def structure_and_fragility(runs: Runs) -> Figure:
    """SSDT under RPI of the last layer against JPEG fragility, one mark a run.

    Args:
        runs: of a grid.

    Returns:
        One panel; the paper's conditions are hollow.

    Raises:
        NothingMeasured: without a trained run.
    """
    cells = tuple(cell for cell in runs if cell != "untrained")
    fig = _one_panel(runs, cells)
    ax = fig.axes[0]
    for cell in cells:
        for run in runs[cell].values():
            style = {**look(cell), "ls": ""}
            ax.plot(rpi_of_last_layer(run), value_of(run, "fragility", shift=JPEG), **style)
        printed, under_rpi = paper_a(cell, JPEG), paper_a(cell, "ssdt_rpi")
        if printed is not None and under_rpi is not None:
            ax.plot(under_rpi, printed, **{**look(cell), "ls": "", "mfc": "white"})
    ax.set(xlabel="SSDT under RPI, last layer", ylabel="JPEG fragility (share of accuracy lost)")
    ax.set_title("Structure tied to the index, and fragility")
    ax.grid(alpha=0.3)
    _legend(fig, runs, cells)
    return fig


def _value(run: Run, metric: str, shift: str | None) -> float:
    return value_of(run, metric, shift=shift)


def _require(runs: Runs, cells: tuple[str, ...]) -> None:
    if not any(runs.get(cell) for cell in cells):
        raise NothingMeasured(f"no run of {', '.join(cells)}")


def _one_panel(runs: Runs, cells: tuple[str, ...]) -> Figure:
    _require(runs, cells)
    fig = Figure(figsize=(6.5, 4.6), layout="constrained")
    fig.subplots()
    return fig


def _draw(
    ax: Axes, runs: Runs, cell: str, intervention: str | None, printed: Sequence[float] | None, **more: Any
) -> None:
    """Mean and s.d. over seeds of SSDT by layer, and the paper's curve."""
    if not runs.get(cell):
        return
    mean, sd, _ = over_seeds(runs[cell], lambda run: layers_of(run, "ssdt", intervention=intervention))
    places = np.arange(len(mean))
    ax.plot(places, mean, **{**look(cell), **more})
    ax.fill_between(places, mean - sd, mean + sd, color=look(cell)["color"], alpha=0.2, lw=0)
    if printed is not None:
        ax.plot(depth_of(len(mean)), printed, **{**look(cell), "ls": "", "mfc": "white", "ms": 4})


def _null(ax: Axes, runs: Runs, cells: tuple[str, ...]) -> None:
    """The widest null band of these cells, layer by layer."""
    bands: dict[int, list[tuple[float, float]]] = {}
    for cell in cells:
        for run in runs.get(cell, {}).values():
            for row in select(run.records, "ssdt", intervention="rpi_null"):
                low, high = spread_of(row, "low"), spread_of(row, "high")
                if low is not None and high is not None:
                    bands.setdefault(row["layer"], []).append((low, high))
    places = sorted(bands)
    lows = [min(band[0] for band in bands[place]) for place in places]
    highs = [max(band[1] for band in bands[place]) for place in places]
    ax.fill_between(places, lows, highs, color=GREY, alpha=0.35, lw=0)
    ax.axhline(0, color=GREY, lw=0.8)


def _layers(ax: Axes, title: str) -> None:
    ax.set(title=title, ylabel="SSDT (Spearman correlation)", xlabel="layer (the last one: output of the last block)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)


def _legend(fig: Figure, runs: Runs, cells: tuple[str, ...]) -> None:
    handles = [
        Line2D([], [], label=f"{cell.replace('_', '+')} ({len(runs[cell])} seeds)", **look(cell))
        for cell in cells
        if runs.get(cell)
    ]
    fig.legend(handles=[*handles, _HOLLOW], loc="outside lower center", ncols=3, frameon=False, fontsize=8)

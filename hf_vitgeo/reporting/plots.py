"""The figures. Each function takes records and returns a matplotlib `Figure`, without pyplot or any global state."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from hf_vitgeo.reporting.records import (
    JPEG,
    SHIFT_TITLES,
    ArgsByModel,
    Record,
    RecordsByModel,
    condition,
    select,
    spread_of,
)
from hf_vitgeo.reporting.styles import GREY, Style, band, fields, legend, line, plain_text, spreads, styles_of, values


class NothingMeasured(ValueError):
    """The records hold nothing of what a figure shows, so a report leaves it out."""


def save_figure(fig: Figure, path: Path) -> Path:
    """Write a figure as PNG, sharp at the width of a README. The same figure gives the same bytes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return path


def ssdt_by_depth(records_by_model: RecordsByModel) -> Figure:
    """SSDT layer by layer: as the model is, and under random patch intervention (RPI).

    Args:
        records_by_model: the records of each model, by label.

    Returns:
        Two panels with one scale. Bands are one s.d. over permutations; the grey band is the widest 95 % null band.

    Raises:
        NothingMeasured: if no SSDT was measured.
    """
    if not any(
        select(records, "ssdt") + select(records, "ssdt", intervention="rpi") for records in records_by_model.values()
    ):
        raise NothingMeasured("no record of ssdt: nothing to draw")
    fig = Figure(figsize=(9, 4.4), layout="constrained")
    plain, shuffled = fig.subplots(1, 2, sharey=True)
    _draw_null(shuffled, records_by_model)
    styles = styles_of(records_by_model)
    for records in records_by_model.values():
        style = styles[condition(records)]
        line(plain, select(records, "ssdt"), "layer", style)
        under_rpi = select(records, "ssdt", intervention="rpi")
        line(shuffled, under_rpi, "layer", style)
        mean, sd = values(under_rpi), spreads(under_rpi, "sd")
        shuffled.fill_between(fields(under_rpi, "layer"), mean - sd, mean + sd, color=style.color, alpha=0.2, lw=0)
    plain.set(title="Patches in their places", ylabel="SSDT (Spearman correlation)")
    shuffled.set_title("Patches shuffled before the position codes (RPI)")
    for ax in (plain, shuffled):
        ax.set_xlabel("layer (the last one: output of the last block)")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
    legend(fig, records_by_model, [Patch(color=GREY, alpha=0.35, lw=0, label="95 % of chance (null band)")])
    return fig


def _draw_null(ax: Axes, records_by_model: RecordsByModel) -> None:
    """Shade the outer edge of all models' null bands: each has its own, and one band can be read."""
    bands: dict[int, list[tuple[float, float]]] = {}
    for records in records_by_model.values():
        for record in select(records, "ssdt", intervention="rpi_null"):
            low, high = spread_of(record, "low"), spread_of(record, "high")
            if low is not None and high is not None:
                bands.setdefault(record["layer"], []).append((low, high))
    ax.axhline(0, color=GREY, lw=0.8)
    layers = sorted(bands)
    lows, highs = (
        [edge(band[side] for band in bands[layer]) for layer in layers] for side, edge in enumerate((min, max))
    )
    ax.fill_between(layers, lows, highs, color=GREY, alpha=0.35, lw=0)


def head_scatter(records_by_model: RecordsByModel, args_by_model: ArgsByModel | None = None) -> Figure:
    """Where each attention head looks: mean attention distance (MAD) against normalised entropy.

    Args:
        records_by_model: the records of each model, by label.
        args_by_model: the arguments of each; where they hold the patch grid, a cross marks a head that attends to all
            patches alike.

    Returns:
        One panel a model, all on the same axes, with the layer as the colour.

    Raises:
        NothingMeasured: if no head was measured.
    """
    heads = {label: _heads(records) for label, records in records_by_model.items()}
    heads = {label: found for label, found in heads.items() if len(found)}
    if not heads:
        raise NothingMeasured("no record of mean_attention_distance and attention_entropy by head: nothing to draw")
    rows = -(-len(heads) // 4)
    columns = -(-len(heads) // rows)  # five models as 3 and 2, not as 4 and 1
    # Wide enough for the label of the axis, also with a single panel.
    fig = Figure(figsize=(max(6.0, 1.6 + 2.0 * columns), 0.9 + 2.3 * rows), layout="constrained")
    axes = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    layers = int(max(found[:, 0].max() for found in heads.values())) + 1
    colors = ScalarMappable(BoundaryNorm(np.arange(layers + 1) - 0.5, 256), "viridis")
    marked = False
    for ax, (label, found) in zip(axes.flat, heads.items(), strict=False):
        ax.scatter(found[:, 1], found[:, 2], c=found[:, 0], cmap=colors.cmap, norm=colors.norm, s=26, ec="w", lw=0.4)
        grid = grid_size((args_by_model or {}).get(label, {}))
        if grid is not None:
            ax.plot(uniform_distance(grid), 1, "x", color="#D55E00", ms=8, mew=2)
            marked = True
        ax.set_title(plain_text(label, 24), fontsize=10)
        ax.grid(alpha=0.3)
    for ax in axes.flat[len(heads) :]:
        ax.set_axis_off()
    for ax in axes.flat[len(heads) - columns : len(heads)]:
        ax.tick_params(labelbottom=True)  # also above a place that stays empty
    right = max(0.6, max(found[:, 1].max() for found in heads.values()) * 1.05)
    axes.flat[0].set(xlim=(0, right), ylim=(0, 1.06))
    fig.supxlabel("mean attention distance (share of the largest distance in the grid)", fontsize=10)
    fig.supylabel("attention entropy (share of log N)", fontsize=10)
    fig.colorbar(colors, ax=axes, label="layer", ticks=range(0, layers, 1 + layers // 13))
    if marked:
        cross = Line2D([], [], color="#D55E00", marker="x", ls="", ms=8, mew=2, label="uniform attention")
        # Above: below, it would lie on the common label of the axes.
        fig.legend(handles=[cross], loc="outside upper right", frameon=False)
    return fig


def _heads(records: Sequence[Record]) -> np.ndarray:
    """Rows of (layer, MAD, entropy), one a head that has both."""
    entropy = {(row["layer"], row["head"]): row["value"] for row in select(records, "attention_entropy")}
    rows = [
        (row["layer"], row["value"], entropy[row["layer"], row["head"]])
        for row in select(records, "mean_attention_distance")
        if row["value"] is not None and entropy.get((row["layer"], row["head"])) is not None
    ]
    return np.array(rows, dtype=float).reshape(-1, 3)


def grid_size(args: Any) -> tuple[int, int] | None:
    """The patch grid (rows, columns) of the model that `args.json` describes; None where it does not say."""
    config = args.get("model_config") or {}
    image, patch = config.get("image_size"), config.get("patch_size")
    if not image or not patch:
        return None
    (height, width), (patch_height, patch_width) = (
        (size, size) if isinstance(size, int | float) else tuple(size)[:2] for size in (image, patch)
    )
    return int(height // patch_height), int(width // patch_width)


def uniform_distance(grid: tuple[int, int]) -> float:
    """MAD of a head that attends to every patch alike: the mean distance of two patches over the largest one."""
    rows, columns = np.arange(grid[0]), np.arange(grid[1])
    distance = np.hypot(rows[:, None], columns)
    # How many ordered pairs of patches lie (row, column) apart, up to sign.
    pairs = np.outer((grid[0] - rows) * (1 + (rows > 0)), (grid[1] - columns) * (1 + (columns > 0)))
    return float((pairs * distance).sum() / pairs.sum() / max(distance[-1, -1], 1))


def has_sweep(records: Iterable[Record]) -> bool:
    """Whether a model was measured at several scales of its position codes."""
    return len(select(records, "accuracy", position_scale=...)) > 1


def alpha_sweep(records_by_model: RecordsByModel) -> Figure:
    """What happens as the position codes are scaled down by alpha at test time.

    Args:
        records_by_model: the records of each model, by label; models without a sweep are left out.

    Returns:
        Three panels against alpha: the gain of SSDT in the first block under RPI, accuracies, and JPEG fragility.

    Raises:
        NothingMeasured: if no model has a sweep.
    """
    swept = {label: records for label, records in records_by_model.items() if has_sweep(records)}
    if not swept:
        raise NothingMeasured("no model has an alpha sweep: nothing to draw")
    fig = Figure(figsize=(10, 4.2), layout="constrained")
    delta, accuracy, fragility = fig.subplots(1, 3)
    styles = styles_of(records_by_model)
    for records in swept.values():
        style = styles[condition(records)]
        found = select(records, "delta_ssdt", intervention="rpi", position_scale=...)
        line(delta, found, "position_scale", style)
        band(delta, found, style, values(found) - spreads(found, "sd"), values(found) + spreads(found, "sd"))
        for shift, dashes in ((None, "-"), (JPEG, "--")):
            found = select(records, "accuracy", position_scale=..., shift=shift)
            face = style.color if shift is None else "white"
            line(accuracy, found, "position_scale", Style(style.color, style.marker, dashes), mfc=face)
        found = select(records, "fragility", position_scale=..., shift=JPEG)
        line(fragility, found, "position_scale", style)
        band(fragility, found, style, spreads(found, "low"), spreads(found, "high"))
    delta.set(title="Gain in the first block, under RPI", ylabel="ΔSSDT (layer 1 − layer 0)")
    accuracy.set(title="Accuracy", ylabel="top-1 accuracy (share of images)")
    accuracy.set_ylim(bottom=0)
    fragility.set(title="Fragility under JPEG, quality 5", ylabel="share of the clean accuracy lost")
    for ax in (delta, fragility):
        ax.axhline(0, color=GREY, lw=0.8)
    for ax in (delta, accuracy, fragility):
        ax.set_xlabel("α (1: position codes as trained)")
        ax.grid(alpha=0.3)
    lines = [Line2D([], [], color=GREY, ls="-", marker="o", label="clean (middle)")]
    lines.append(Line2D([], [], color=GREY, ls="--", marker="o", mfc="white", label="JPEG, quality 5 (middle)"))
    legend(fig, swept, lines, styles)
    return fig


def fragility_bars(records_by_model: RecordsByModel) -> Figure:
    """Clean accuracy, and beside it the share of it that each shift of the images takes away.

    Args:
        records_by_model: the records of each model, by label.

    Returns:
        One panel for the clean accuracy and one a shift, with 95 % intervals over images; diamonds are the values
        corrected for guessing.

    Raises:
        NothingMeasured: if no fragility was measured.
    """
    everything = [
        record for records in records_by_model.values() for record in select(records, "fragility", shift=...)
    ]
    shifts = list(dict.fromkeys(record["shift"] for record in everything))
    if not shifts:
        raise NothingMeasured("no record of fragility: nothing to draw")
    fig = Figure(figsize=(9, 1.6 + 0.42 * len(records_by_model)), layout="constrained")
    axes = fig.subplots(1, 1 + len(shifts), sharey=True)
    _bars(axes[0], records_by_model, "accuracy", None)
    axes[0].set(title="Clean accuracy", xlabel="share of images", xlim=(0, 1))
    axes[0].set_yticks(range(len(records_by_model)), [plain_text(label, 24) for label in records_by_model])
    axes[0].invert_yaxis()
    for ax, shift in zip(axes[1:], shifts, strict=True):
        _bars(ax, records_by_model, "fragility", shift)
        ax.set(title=plain_text(SHIFT_TITLES.get(shift, shift), 28), xlabel="fragility (share of accuracy lost)")
    diamond = Line2D([], [], color="black", marker="D", mfc="white", ls="", label="corrected for guessing")
    interval = Line2D([], [], color="black", lw=1.5, label="95 % interval over images")
    fig.legend(handles=[interval, diamond], loc="outside lower center", ncols=2, frameon=False)
    return fig


def _bars(ax: Axes, records_by_model: RecordsByModel, metric: str, shift: str | None) -> None:
    """One bar a model, with its interval; "undefined" where there is no value."""
    styles = styles_of(records_by_model)
    for place, records in enumerate(records_by_model.values()):
        found = select(records, metric, shift=shift)[:1]
        value = found[0]["value"] if found else None
        if value is None:
            ax.text(0, place, " undefined" if found else " not measured", va="center", fontsize=8, color=GREY)
            continue
        ax.barh(place, value, color=styles[condition(records)].color, alpha=0.75, height=0.6)
        halo = [withStroke(linewidth=3.5, foreground="white")]  # or it could not be seen on a black bar
        ax.hlines(place, spreads(found, "low"), spreads(found, "high"), color="black", lw=1.5, path_effects=halo)
        corrected = select(records, "fragility_chance_corrected", shift=shift) if shift else []
        ax.plot(values(corrected), [place + 0.3] * len(corrected), "D", color="black", mfc="white", ms=5)
    ax.axvline(0, color=GREY, lw=0.8)
    ax.grid(axis="x", alpha=0.3)

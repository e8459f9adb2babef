"""How everything in the figures is drawn: one style a condition, lines, bands, legends and names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hf_vitgeo.reporting.records import Record, RecordsByModel, condition, spread_of


@dataclass(frozen=True)
class Style:
    """How one condition is drawn in every figure."""

    color: str
    marker: str
    linestyle: str


#: The Okabe-Ito colours, which people with any colour vision can tell apart; markers and lines repeat the difference.
STYLES = {
    "none": Style("#000000", "s", ":"),
    "learned": Style("#0072B2", "o", "-"),
    "sinusoidal": Style("#009E73", "^", "-."),
    "rope": Style("#D55E00", "D", "--"),
    "learned+rpt": Style("#CC79A7", "v", (0, (3, 1, 1, 1, 1, 1))),  # type: ignore[arg-type]  # dash-dot-dot
    # paper C's variants, which stand in no figure with those of paper A
    "cls baseline": Style("#000000", "s", ":"),
    "register-4": Style("#0072B2", "o", "-"),
    "specialization": Style("#009E73", "^", "-."),
    "entmax15": Style("#D55E00", "D", "--"),
}
_SPARE = (Style("#56B4E9", "P", "-"), Style("#E69F00", "X", "--"), Style("#666666", "<", "-."))
GREY = "#888888"


def styles_of(records_by_model: RecordsByModel) -> dict[str, Style]:
    """The style of each condition: fixed for the known ones, the spare ones in turn for the rest."""
    names = dict.fromkeys(condition(records) for records in records_by_model.values())
    others = [name for name in names if name not in STYLES]
    return STYLES | {name: _SPARE[place % len(_SPARE)] for place, name in enumerate(others)}


def values(records: Sequence[Record]) -> np.ndarray:
    """The values, not-a-number where there is none, so that a line has a gap there."""
    return np.array([record["value"] for record in records], dtype=float)


def spreads(records: Sequence[Record], field: str) -> np.ndarray:
    """A field of each spread, not-a-number where there is none."""
    return np.array([spread_of(record, field) for record in records], dtype=float)


def fields(records: Sequence[Record], field: str) -> list[float]:
    """A field of each record."""
    return [record[field] for record in records]


def line(ax: Axes, records: Sequence[Record], field: str, style: Style, **options: Any) -> None:
    """Draw values against a field of the records."""
    look = {"color": style.color, "marker": style.marker, "ls": style.linestyle, "ms": 5, "lw": 1.6, **options}
    ax.plot(fields(records, field), values(records), **look)


def band(ax: Axes, records: Sequence[Record], style: Style, low: np.ndarray, high: np.ndarray) -> None:
    """Shade between two curves over the position scale."""
    ax.fill_between(fields(records, "position_scale"), low, high, color=style.color, alpha=0.2, lw=0)


def legend(
    fig: Figure, records_by_model: RecordsByModel, more: Sequence[Any] = (), styles: dict[str, Style] | None = None
) -> None:
    """One entry a condition, below the panels; several seeds share their condition's style."""
    names = [condition(records) for records in records_by_model.values()]
    styles = styles or styles_of(records_by_model)
    handles: list[Any] = []
    for name in dict.fromkeys(names):
        style, count = styles[name], names.count(name)
        text = plain_text(name, 32) + (f" ({count} runs)" if count > 1 else "")
        line = Line2D([], [], color=style.color, marker=style.marker, ls=style.linestyle, ms=5, label=text)
        handles.append(line)
    fig.legend(handles=[*handles, *more], loc="outside lower center", ncols=4, frameon=False)


def plain_text(name: str, length: int) -> str:
    """A name as plain text: cut to a length, and with dollars that matplotlib does not read as mathematics."""
    cut = name if len(name) <= length else name[: length - 1] + "…"
    return cut.replace("$", r"\$")

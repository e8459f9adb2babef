"""Numbers of a cell, or of two cells, seed by seed."""

from collections.abc import Callable

from hf_vitgeo.reporting.grids import Run, Runs

#: What is taken of a run.
Of = Callable[[Run], float]


def by_seed(runs: Runs, cell: str, of: Of) -> dict[int, float]:
    """A number of each seed of a cell."""
    return {seed: of(run) for seed, run in runs.get(cell, {}).items()}


def difference(runs: Runs, cell: str, other: str, of: Of) -> dict[int, float]:
    """A number of one cell minus that of another, for the seeds that both have."""
    mine, theirs = by_seed(runs, cell, of), by_seed(runs, other, of)
    return {seed: mine[seed] - theirs[seed] for seed in mine if seed in theirs}


def missing(runs: Runs, *cells: str) -> list[str]:
    """Those of some cells that have no run."""
    return [cell for cell in cells if not runs.get(cell)]

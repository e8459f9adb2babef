"""From the folder of a grid to its runs, cell by cell and seed by seed, and curves with their spread over seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_vitgeo.reporting.over_time import min_mad_by_step, one_sample
from hf_vitgeo.reporting.records import Record, last_layer, load_runs, select
from hf_vitgeo.reporting.tables import minimum_distance
from hf_vitgeo.runs import RunDir, check_record


@dataclass(frozen=True)
class Run:
    """One finished run of a grid.

    Attributes:
        path: its folder.
        args: its `args.json`.
        records: what its last analysis found.
        every_record: also what was measured during training.
    """

    path: Path
    args: Mapping[str, Any]
    records: Sequence[Record]
    every_record: Sequence[Record]


#: The runs of a grid by cell, then by seed.
Runs = Mapping[str, Mapping[int, Run]]


@dataclass(frozen=True)
class GridResults:
    """What a grid has found so far.

    Attributes:
        plan: `grid.json`.
        runs: finished runs by cell and seed; cells without one are left out.
        missing: names of the runs that are not finished.
    """

    plan: Mapping[str, Any]
    runs: Runs
    missing: Sequence[str]


def load_grid(root: Path) -> GridResults:
    """Read the folder of a grid; every record is checked against the schema.

    Args:
        root: the folder, with a `grid.json`.

    Returns:
        Its plan and its finished runs.

    Raises:
        ValueError: for a folder that is no grid, or a record outside the schema.
    """
    plan = RunDir(root).args("grid.json")
    if not plan:
        raise ValueError(f"{root} has no grid.json; scripts/reproduce.py writes one")
    runs: dict[str, dict[int, Run]] = {}
    missing = []
    for cell in plan["cells"]:
        for seed in plan["seeds"]:
            folder = Path(root) / cell / f"seed_{seed}"
            run = RunDir(folder)
            if not run.args("analysis.json"):
                missing.append(f"{cell}, seed {seed}")
                continue
            try:
                everything = [check_record(record) for record in run.results()]
            except ValueError as error:
                raise ValueError(f"{folder}: {error}") from error
            records = [record for found in load_runs([folder])[0].values() for record in found]
            runs.setdefault(cell, {})[seed] = Run(folder, run.args(), records, everything)
    return GridResults(plan, runs, missing)


def layers_of(run: Run, metric: str, **fields: Any) -> np.ndarray:
    """A metric layer by layer, the mean over heads where it has heads.

    Args:
        run: of a grid.
        metric: its name.
        **fields: as for `records.select`.

    Returns:
        (L,) values, not-a-number where there is none; of length 0 where nothing was measured.
    """
    found: dict[int, list[float]] = {}
    for row in select(run.records, metric, **fields):
        if row["layer"] is not None:
            found.setdefault(row["layer"], []).append(math.nan if row["value"] is None else row["value"])
    return np.array([np.mean(found[layer]) for layer in sorted(found)])


def value_of(run: Run, metric: str, **fields: Any) -> float:
    """One value of a run, not-a-number where it was not measured."""
    found = select(run.records, metric, **fields)
    return math.nan if not found or found[0]["value"] is None else float(found[0]["value"])


def minimum_mad(run: Run) -> float:
    """Paper B's minimum mean attention distance over all heads; not-a-number where none was measured."""
    found = minimum_distance(run.records)
    return math.nan if found is None else found


def rpi_of_last_layer(run: Run) -> float:
    """SSDT under RPI of the raw output of the last block, the mean over permutations."""
    return value_of(run, "ssdt", intervention="rpi", layer=last_layer(run.records, "rpi"))


def over_seeds(runs: Mapping[int, Run], of: Callable[[Run], Any]) -> tuple[np.ndarray, np.ndarray, int]:
    """Mean and s.d. over the seeds of a cell.

    Args:
        runs: of one cell, by seed.
        of: what to take of each; a number or an array of one length.

    Returns:
        Mean, s.d. (not-a-number for one seed) and number of seeds.
    """
    found = np.array([of(run) for run in runs.values()], dtype=float)
    sd = found.std(axis=0, ddof=1) if len(found) > 1 else np.full(found.shape[1:], math.nan)
    return found.mean(axis=0), sd, len(found)


def accuracy_by_step(run: Run) -> dict[int, float]:
    """Accuracy of the evaluation split after each epoch, by optimiser step."""
    events = RunDir(run.path).events()
    return {event["step"]: event["accuracy"] for event in events if event.get("accuracy") is not None}


def mad_by_step(run: Run) -> dict[int, float]:
    """Minimum MAD by optimiser step, on the sample that was measured while training."""
    return min_mad_by_step(one_sample(run.every_record))


def rpi_by_step(run: Run) -> dict[int, float]:
    """SSDT under RPI of the last layer by optimiser step, on the sample that was measured while training."""
    records = one_sample(run.every_record)
    found = select(records, "ssdt", intervention="rpi", layer=last_layer(records, "rpi"), step=...)
    return {
        row["step"]: row["value"] for row in sorted(found, key=lambda row: row["step"]) if row["value"] is not None
    }

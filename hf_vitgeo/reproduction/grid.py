"""A grid of runs, cells times seeds: trained, measured, resumed, sharded."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hf_vitgeo.recipes import words_of
from hf_vitgeo.reproduction.scales import analysis_flags, training_flags
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.command_line import parse
from hf_vitgeo.training.loop_arguments import PRESET_CONDITION

#: Exit status of a run that was asked to stop (128 + SIGTERM).
_TERMINATED = 143


@dataclass(frozen=True)
class Grid:
    """What one grid consists of; `grid.json` holds it.

    Attributes:
        paper: "A" or "B".
        scale: one of `scales.SCALES`.
        seeds: seeds of training.
        cells: names in `scales.CELLS[paper]`.
        dataset_name: Hub id or folder instead of the scale's, or None.
        train_flags: further flags of training, as one would type them.
    """

    paper: str
    scale: str
    seeds: tuple[int, ...]
    cells: tuple[str, ...]
    dataset_name: str | None = None
    train_flags: str = ""


@dataclass(frozen=True)
class Job:
    """One cell with one seed.

    Attributes:
        cell: name of the cell.
        seed: of training.
        words: the training's command line.
        analysis: flags of its analysis.
    """

    cell: str
    seed: int
    words: list[str]
    analysis: dict[str, Any]

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.cell}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Its run folder."""
        return Path(self.words[self.words.index("--output_dir") + 1])


def folder_of(root: Path, cell: str, seed: int) -> Path:
    """Where a cell's run with a seed is."""
    return root / cell / f"seed_{seed}"


def jobs_of(grid: Grid, root: Path) -> list[Job]:
    """Every run of a grid, one seed after the other, so that what is cut short has whole seeds.

    Args:
        grid: what to run.
        root: folder of the grid.

    Returns:
        The runs in order.

    Raises:
        ValueError: for a cell or scale that there is not.
    """
    found = []
    for seed in grid.seeds:
        for cell in grid.cells:
            flags = training_flags(grid.paper, cell, grid.scale, grid.dataset_name)
            flags |= {"seed": seed, "output_dir": str(folder_of(root, cell, seed)), "resume_from_checkpoint": "auto"}
            words = [*words_of(flags), *shlex.split(grid.train_flags)]
            found.append(Job(cell, seed, words, analysis_flags(grid.paper, grid.scale)))
    return found


def check(jobs: Sequence[Job]) -> None:
    """Refuse wrong flags, and folders that hold something else, before the first run starts.

    Args:
        jobs: of `jobs_of`.

    Raises:
        ValueError: for a folder with a run of other arguments.
        SystemExit: with status 2, for a wrong flag.
    """
    for job in jobs:
        args = parse(SupervisedArguments, job.words, "", "reproduce.py")
        recorded, given = RunDir(job.folder).args(), args.what_resume_keeps()
        given |= {name: value for name, value in PRESET_CONDITION.items() if given[name] is None}
        differ = {
            name: (recorded[name], value)
            for name, value in given.items()
            if name in recorded and recorded[name] != value
        }
        if differ:
            said = ", ".join(f"--{name} was {old}, now {new}" for name, (old, new) in differ.items())
            raise ValueError(f"{job.folder} holds a run with other arguments ({said}); name another --output_dir")


def is_trained(run: RunDir) -> bool:
    """Whether a run folder holds a finished training."""
    return run.args().get("steps") is not None and run.checkpoint.is_dir()


def is_measured(job: Job) -> bool:
    """Whether the analysis that a job asks for is done."""
    recorded = RunDir(job.folder).args("analysis.json")
    return bool(recorded) and all(recorded.get(name) == value for name, value in job.analysis.items())


def run_grid(grid: Grid, root: Path, shard: tuple[int, int] = (1, 1), launch: str | None = None) -> dict[str, str]:
    """Train and measure what is not yet there; a run that fails is named, and the others go on.

    Args:
        grid: what to run.
        root: its folder; each run is in `<cell>/seed_<n>`.
        shard: (i, n) takes every n-th run from the i-th on, i from 1 to n.
        launch: words before a training, such as "accelerate launch --num_processes 2"; None trains in this process.

    Returns:
        What went wrong, by the name of the run.

    Raises:
        ValueError: as `jobs_of` and `check` do, or for a folder with another grid.
        SystemExit: with status 143 after SIGTERM; the run that was interrupted can be resumed.
    """
    jobs = jobs_of(grid, root)
    check(jobs)
    _write_grid(grid, root)
    number, count = shard
    failed: dict[str, str] = {}
    with tqdm(jobs[number - 1 :: count], desc=f"paper {grid.paper}", unit="run") as bar:
        for job in bar:
            bar.set_postfix_str(job.name)
            try:
                _finish(job, launch)
            except (Exception, SystemExit) as error:
                if isinstance(error, SystemExit) and error.code == _TERMINATED:
                    raise
                failed[job.name] = f"{error or type(error).__name__}"
                tqdm.write(f"{job.name} failed: {failed[job.name]}", file=sys.stderr)
    return failed


def _write_grid(grid: Grid, root: Path) -> None:
    """Write `grid.json`; what other seeds, cells and shards wrote is kept."""
    run, mine = RunDir(root), asdict(grid)
    old = run.args("grid.json")
    for name in ("paper", "scale", "dataset_name", "train_flags"):
        if old and old[name] != mine[name]:
            raise ValueError(
                f"{root} holds a grid with --{name} {old[name]}, not {mine[name]}; name another --output_dir"
            )
    mine["seeds"] = sorted({*old.get("seeds", ()), *grid.seeds})
    mine["cells"] = list(dict.fromkeys([*old.get("cells", ()), *grid.cells]))
    run.write_args(mine, "grid.json")


def _finish(job: Job, launch: str | None) -> None:
    """Train where that is not done, then measure where that is not done."""
    run = RunDir(job.folder)
    if not is_trained(run):
        if launch is None:
            from hf_vitgeo.commands import train_supervised

            train_supervised.run(parse(SupervisedArguments, job.words, "", "reproduce.py"))
        else:
            _launch([*shlex.split(launch), "-m", "hf_vitgeo.cli", "train", *job.words])
    if not is_measured(job):
        from hf_vitgeo.commands import analyze

        analyze.run(analyze.AnalyzeArguments(model=str(job.folder), **job.analysis))


def _launch(words: list[str]) -> None:
    """Run a command to its end; SIGTERM goes on to it."""
    process = subprocess.Popen(words)
    pass_on: Callable[..., None] = lambda number, frame: process.send_signal(number)  # noqa: E731
    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        process.kill()
    if status:
        raise SystemExit(status if status == _TERMINATED else f"{shlex.join(words)} ended with status {status}")
